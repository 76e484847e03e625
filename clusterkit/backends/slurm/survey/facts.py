"""What is known about a site after one look at it. None or nothing stands for what the site did not tell.

Sizes are bytes and times seconds, as everywhere; names are spelled as the site spells them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clusterkit.backends.survey import SiteSurvey


@dataclass(frozen=True)
class Gres:
    """GPUs of one kind on one node, as sinfo lists them."""

    type: str | None
    """As the site spells it; None where its Slurm gives GPUs no types."""
    count: int


@dataclass(frozen=True)
class Nodes:
    """The nodes of one partition that are alike."""

    count: int
    usable: int
    """How many are neither down nor drained."""
    cpus: int
    memory: int
    gpus: tuple[Gres, ...] = ()
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Partition:
    """A queue and who may use it."""

    name: str
    default: bool = False
    up: bool = True
    max_time: int | None = None
    """None without a limit."""
    nodes: tuple[Nodes, ...] = ()
    accounts: tuple[str, ...] | None = None
    """The only accounts that may submit; None for all."""
    denied_accounts: tuple[str, ...] = ()
    groups: tuple[str, ...] | None = None
    """The only Unix groups that may submit; None for all."""
    qos: tuple[str, ...] | None = None
    """The only QOS that may be asked for; None for all."""
    denied_qos: tuple[str, ...] = ()
    own_qos: str | None = None
    """The QOS whose limits hold for every job of the partition."""
    root_only: bool = False
    cpus_per_node: int | None = None
    """The most CPUs of a node that a job may have."""
    memory_per_node: int | None = None
    """The most memory of a node that a job may have."""

    @property
    def has_gpus(self) -> bool:
        """Whether a node of it has a GPU."""
        return any(nodes.gpus for nodes in self.nodes)


@dataclass(frozen=True)
class Association:
    """An account the user may charge, as the accounting database has it."""

    account: str
    partition: str | None = None
    """The one partition it holds for; None for all."""
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
    max_time: int | None = None


@dataclass(frozen=True)
class Qos:
    """A quality of service and the longest job it allows."""

    name: str
    max_time: int | None = None


@dataclass(frozen=True)
class Slurm:
    """The scheduler as a whole."""

    version: str | None = None
    name: str | None = None
    """ClusterName."""
    partitions: tuple[Partition, ...] = ()
    associations: tuple[Association, ...] = ()
    default_account: str | None = None
    qos: tuple[Qos, ...] = ()
    config: dict[str, str] = field(default_factory=dict)
    """What `scontrol show config` printed."""


@dataclass(frozen=True)
class SlurmSurvey(SiteSurvey):
    """All that one look at a site with Slurm has shown."""

    slurm: Slurm | None = None
    """None where no Slurm was found."""
    slurm_path: str | None = None
    """Where Slurm's commands lie when even a login shell does not have them on PATH."""
    modules: tuple[str, ...] = ()
    """Names of modules that offer Slurm or a container runtime."""

    @property
    def scheduler(self) -> str:
        """`Slurm 24.11.5`, or that there is none."""
        return f"Slurm {self.slurm.version or ''}".strip() if self.slurm else "no Slurm"

    @property
    def ready(self) -> bool:
        """Whether Slurm is on PATH."""
        return self.slurm is not None and self.slurm_path is None
