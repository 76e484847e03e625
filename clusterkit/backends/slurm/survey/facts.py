"""Facts about a site from one survey. None or empty means that the site did not tell.

Sizes are bytes, times are seconds, and names are spelled as at the site.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clusterkit.backends.slurm.request import Gpus
from clusterkit.backends.survey import SiteSurvey


@dataclass(frozen=True)
class Nodes:
    """Identical nodes of one partition."""

    count: int
    usable: int
    """How many are neither down nor drained."""
    cpus: int
    memory: int
    gpus: tuple[Gpus, ...] = ()
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
    """The only QOS that may be requested; None for all."""
    denied_qos: tuple[str, ...] = ()
    own_qos: str | None = None
    """The QOS whose limits apply to every job of the partition."""
    root_only: bool = False
    cpus_per_node: int | None = None
    """The most CPUs of a node that a job may have."""
    memory_per_node: int | None = None
    """The most memory of a node that a job may have."""

    @property
    def has_gpus(self) -> bool:
        """Whether any of its nodes has a GPU."""
        return any(nodes.gpus for nodes in self.nodes)


@dataclass(frozen=True)
class Association:
    """An account the user may charge, as the accounting database has it."""

    account: str
    partition: str | None = None
    """The only partition it is valid for; None for all."""
    qos: tuple[str, ...] = ()
    default_qos: str | None = None
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
    qos: dict[str, int | None] = field(default_factory=dict)
    """The longest time of a job by QOS; None without a limit."""
    config: dict[str, str] = field(default_factory=dict)
    """What `scontrol show config` printed."""


@dataclass(frozen=True)
class SlurmSurvey(SiteSurvey):
    """The survey of a site with Slurm."""

    slurm: Slurm | None = None
    """None where no Slurm was found."""
    slurm_path: str | None = None
    """The folder of Slurm's commands if even a login shell does not have them on PATH."""
    modules: tuple[str, ...] = ()
    """Names of modules that offer Slurm or a container runtime."""

    @property
    def scheduler(self) -> str:
        """`Slurm 24.11.5`, or a text that there is none."""
        return f"Slurm {self.slurm.version or ''}".strip() if self.slurm else "no Slurm"

    @property
    def ready(self) -> bool:
        """Whether Slurm is on PATH."""
        return self.slurm is not None and self.slurm_path is None
