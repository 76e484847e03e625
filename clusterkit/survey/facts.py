"""What is known about a site after one look at it. None or nothing stands for what the site did not tell.

Sizes are bytes and times seconds, as everywhere; names are spelled as the site spells them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from clusterkit.ownership import Finding


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
    whole_nodes: bool = False
    """Whether each job gets its nodes for itself (OverSubscribe=EXCLUSIVE)."""
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

    @property
    def enforces_accounts(self) -> bool:
        """Whether a job without a valid account is refused (AccountingStorageEnforce)."""
        return bool({"associations", "limits", "qos", "all", "1", "2"} & self._enforced)

    @property
    def enforces_qos(self) -> bool:
        """Whether a job without a permitted QOS is refused."""
        return bool({"qos", "all"} & self._enforced)

    @property
    def _enforced(self) -> set[str]:
        return set(self.config.get("AccountingStorageEnforce", "none").lower().split(","))


@dataclass(frozen=True)
class Runtime:
    """A container runtime."""

    name: str
    """`apptainer` or `singularity`, the command."""
    version: str | None = None
    setuid: bool | None = None
    """Whether it starts containers with the help of a setuid program; else it needs user namespaces."""
    module: str | None = None
    """The module to load first; None where it is on PATH."""


@dataclass(frozen=True)
class Root:
    """A folder that the work root could lie in."""

    path: str
    """As it should be written in the settings: with $USER, and $HOME for the home folder."""
    why: str
    """Where the idea came from: a variable of the login (`$SCRATCH`), or `usual`."""
    exists: bool
    writable: bool
    """Whether the user can write to it, or make it."""
    free: int | None = None
    total: int | None = None
    quota_left: int | None = None
    """What the user's quota still allows there."""
    file_system: str | None = None
    """Its type, e.g. `nfs` or `lustre`."""
    faults: tuple[Finding, ...] = ()
    """How others could change a work root below it."""

    @property
    def left(self) -> int | None:
        """What can be written: the smaller of free space and quota."""
        known = [value for value in (self.free, self.quota_left) if value is not None]
        return min(known) if known else None


@dataclass(frozen=True)
class SiteSurvey:
    """All that one look at a site has shown."""

    host_name: str
    """What the machine calls itself."""
    user: str
    groups: tuple[str, ...] = ()
    slurm: Slurm | None = None
    """None where no Slurm was found."""
    slurm_path: str | None = None
    """Where Slurm's commands lie when even a login shell does not have them on PATH."""
    login_shell: bool = False
    """Whether only a login shell has Slurm on PATH."""
    runtimes: tuple[Runtime, ...] = ()
    """The best one first."""
    user_namespaces: bool | None = None
    """Whether the login node lets users make user namespaces."""
    modules: tuple[str, ...] = ()
    """Names of modules that offer Slurm or a container runtime."""
    roots: tuple[Root, ...] = ()
    chosen: tuple[Finding, ...] = ()
    """How others could change the work root that was chosen already."""
    rsync: str | None = None
    """Its version."""
    python: str | None = None
    workspaces: bool = False
    """Whether the site hands out folders by `ws_allocate` (hpc-workspace)."""
    internet: bool | None = None
    """Whether the login node reaches the internet; of compute nodes that says nothing."""
    silent: tuple[str, ...] = ()
    """Questions that were not answered in time."""
