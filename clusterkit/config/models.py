"""What can be configured: clusters, profiles, the project and notices, as strict frozen models.

Every field is documented in docs/configuration.md; a test compares the two.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from clusterkit.config.kinds import DEFAULT as DEFAULT_KIND
from clusterkit.config.kinds import find_kind
from clusterkit.config.notify import Notify
from clusterkit.config.options import GPU_REQUEST, NATIVE
from clusterkit.config.values import (
    Architectures,
    Duration,
    Environment,
    EnvironmentName,
    Line,
    Lines,
    LocalPath,
    Name,
    NativeOptions,
    Program,
    ProgramHere,
    SettingsModel,
    ShellLines,
    Size,
    SshConfigHere,
    TrackerPlaces,
    as_tuple,
)
from clusterkit.hardware import ARCHITECTURES
from clusterkit.runtimes import DEFAULT as DEFAULT_RUNTIME
from clusterkit.runtimes import Runtime, all_runtimes, runtime_of

_REQUEST = re.compile(r"--[a-z][a-z-]*=\S+")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,14}")


def _request(template: str) -> str:
    """Checks a GPU request template; its only placeholders are {type} and {count}."""
    try:
        filled = template.format(type="a40", count=1)
    except (KeyError, IndexError, ValueError):
        filled = ""
    if not _REQUEST.fullmatch(filled):
        raise ValueError(
            f"{template!r} is not one {NATIVE} option with {{type}} and {{count}}; "
            f'write e.g. "{GPU_REQUEST}" or "--gpus={{type}}:{{count}}"'
        )
    return template


def _interface(name: str) -> str:
    if not _INTERFACE.fullmatch(name):
        raise ValueError(f'{name!r} is not the name of a network interface; write e.g. "ib0" or "eth0"')
    return name


def _container(name: str) -> str:
    runtime_of(name)
    return name


def _kind(name: str) -> str:
    find_kind(name)
    return name


def _bind(bind: str) -> str:
    source, _, rest = bind.partition(":")
    if not source or len(bind.split(":")) > 3 or (rest and rest.startswith(":")):
        raise ValueError(
            f'{bind!r} is not a bind mount; write "source", "source:target" or "source:target:ro"'
        )
    return bind


def _binds(binds: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_bind(bind) for bind in binds)


def _remote_root(path: str) -> str:
    if path != "~" and not path.startswith(("/", "~/", "$HOME", "${HOME}")):
        raise ValueError(f'{path!r} is not absolute; start it with "/", "~/" or "$HOME/"')
    if "$" in re.sub(r"\$(?:USER|HOME)\b|\$\{(?:USER|HOME)\}", "", path):
        raise ValueError(f"{path!r} contains a variable other than $USER and $HOME")
    return path


RemotePath = Annotated[Line, AfterValidator(_remote_root)]
"""A path on the cluster; `~`, $USER and $HOME are expanded there."""
Interface = Annotated[Line, AfterValidator(_interface)]


class GpuTable(SettingsModel):
    """How one cluster spells one GPU type. What is set here wins over the cluster's own value."""

    request: Annotated[Line, AfterValidator(_request)] = GPU_REQUEST
    """The option that asks for such GPUs, with {type} and {count}."""
    partition: Line | None = None
    """The partition; None is the cluster's."""
    account: Line | None = None
    """The account; None is the cluster's."""
    qos: Line | None = None
    """The QOS; None is the cluster's."""
    constraint: Line | None = None
    """The constraint; None is the cluster's."""
    memory: Size | None = None
    """Memory of one GPU in bytes."""
    vendor: Literal["nvidia", "amd"] = "nvidia"
    """Who made them: how containers get them, and which tools tell of them."""
    sbatch: NativeOptions = Field(default_factory=dict)
    """Further options, over those of the cluster."""


class Cluster(SettingsModel):
    """A login host, its file-system roots, its scheduler and its container runtime."""

    name: str
    kind: Annotated[str, AfterValidator(_kind)] = DEFAULT_KIND
    """Which backend carries out its jobs."""
    host: Line | None = None
    """A host as `ssh` knows it; None is this machine."""
    root: RemotePath
    """Everything clusterkit keeps on the cluster lies below it."""
    scratch: RemotePath | None = None
    """Where per-job scratch folders are made; None is `scratch` in the work root."""
    image_store: RemotePath | None = None
    """Where images are kept; None is `images` in the work root."""
    group: Line | None = None
    """Unix group that may read images and snapshots; None keeps them private."""
    trust: Lines = ()
    """Users who may own, and Unix groups who may write to, the folders there; `*` is everybody."""
    container: Annotated[str, AfterValidator(_container)] = DEFAULT_RUNTIME
    """What starts programs there."""
    image: LocalPath | None = None
    """The image on this machine, in the format of its container runtime; `{arch}` is that of its nodes."""
    arch: Architectures = Field(default_factory=dict)
    """The architecture of its nodes, or by partition with `*` for all others; "any" may be different ones."""
    registry_image: Line | None = None
    """An image that each job takes from a registry instead, as a runtime that can do so names it."""
    python: Line | None = None
    """The interpreter of programs; None is `python3`."""
    packages: Literal["node", "login", "laptop"] = "node"
    """Where the packages of Python environments are fetched; they are installed on a node in any case."""
    binds: Annotated[Lines, AfterValidator(_binds)] = ()
    """Folders that containers see: "source:target:ro"."""
    prelude: ShellLines = ()
    """Shell lines before the program, e.g. "module load apptainer"."""
    strict_prelude: bool = False
    """Whether one of them that fails ends the run."""
    login_shell: bool = False
    """Whether commands there run in a login shell, to find the scheduler."""
    keep_login: Duration | None = None
    """Let OpenSSH keep each login for later commands, until so many seconds have passed without one."""
    transport: Literal["auto", "paramiko", "openssh"] = "auto"
    """What logs in to the host."""
    partition: Line | None = None
    """The partition of jobs without a GPU type that has one."""
    account: Line | None = None
    """The account, likewise."""
    qos: Line | None = None
    """The QOS, likewise."""
    constraint: Line | None = None
    """The constraint, likewise."""
    max_time: Duration | None = None
    """Longest time limit the site accepts, in seconds."""
    continue_by: Literal["auto", "requeue", "array", "chain"] = "auto"
    """How runs go on past their time limit."""
    gpus: dict[Name, GpuTable] = Field(default_factory=dict)
    """How the cluster spells its GPU types."""
    interface: Interface | None = None
    """Network interface by which the nodes of a run talk to each other; None finds one."""
    mps: bool = False
    """Whether the runs of a pack use its GPU through NVIDIA MPS, which their job starts."""
    sbatch: NativeOptions = Field(default_factory=dict)
    """Options of its jobs."""
    ssh_config: SshConfigHere | None = None
    """An ssh configuration in place of the user's own."""

    @model_validator(mode="after")
    def _has_host_or_is_here(self) -> Cluster:
        if self.here and self.host is not None:
            raise ValueError(
                f'kind = "{self.kind}" runs on this machine; drop host, or write kind = "{DEFAULT_KIND}"'
            )
        return self

    @model_validator(mode="after")
    def _suits_its_runtime(self) -> Cluster:
        self.runtime.check_settings(
            kind=self.kind, here=self.here, mps=self.mps, registry_image=self.registry_image
        )
        if self.registry_image is None:
            return self
        if not self.runtime.registry:
            able = " or ".join(f'"{runtime.name}"' for runtime in all_runtimes() if runtime.registry)
            raise ValueError(f"registry_image needs container = {able}")
        if self.image is not None:
            raise ValueError("image and registry_image exclude each other")
        return self

    @property
    def image_files(self) -> tuple[Path, ...]:
        """The image's files on this machine that are there: one, or one for each architecture."""
        names = ARCHITECTURES if self.image_by_architecture else ("",)
        files = map(self.image_file, names)
        return tuple(file for file in files if file and file.is_file())

    def image_file(self, arch: str) -> Path | None:
        """Returns where the image for an architecture lies on this machine; None without an image."""
        return None if self.image is None else Path(str(self.image).replace("{arch}", arch))

    @property
    def image_by_architecture(self) -> bool:
        """Whether the image has a file for each architecture."""
        return "{arch}" in str(self.image)

    @property
    def runtime(self) -> Runtime:
        """What starts programs there."""
        return runtime_of(self.container)

    @property
    def contained(self) -> bool:
        """Whether programs run in a container there."""
        return self.runtime.contained

    @property
    def here(self) -> bool:
        """Whether its jobs are processes of this machine."""
        return find_kind(self.kind).here

    @property
    def login_config(self) -> Path | None:
        """The ssh configuration for its login; None is the user's own.

        Raises:
            NotAllowedError: it is the project's, and the user has not allowed it.
        """
        return None if self.ssh_config is None else self.ssh_config.allowed()

    @property
    def scratch_root(self) -> str:
        """Where per-job scratch folders are made."""
        return self.scratch or f"{self.root.rstrip('/')}/scratch"

    @property
    def image_root(self) -> str:
        """Where images are kept."""
        return self.image_store or f"{self.root.rstrip('/')}/images"

    @property
    def stores_image(self) -> bool:
        """Whether its containers start from an image in its store."""
        return self.contained and self.registry_image is None

    @property
    def interpreter(self) -> str:
        """The Python that runs the launcher where there is no container."""
        return self.python or (sys.executable if self.here else "python3")


class Retry(SettingsModel):
    """What a cluster tries again by itself."""

    memory_up_to: Size | None = None
    """After running out of memory, twice as much each time, up to so many bytes; None is not at all."""
    node_failures: int = Field(default=0, ge=0, le=4)
    """After so many node failures, on another node. Slurm itself stops at five (max_batch_requeue)."""


class Profile(SettingsModel):
    """The hardware one kind of run asks for and the settings tuned to that hardware."""

    name: str
    description: Line = ""
    """What the profile is for."""
    gpu: Line | None = None
    """A GPU type of the cluster's table; "none" takes back that of an extended profile."""
    nodes: int = Field(default=1, ge=1)
    """Nodes of one run. GPUs, processors, memory and scratch are those of each node."""
    gpus: int = Field(default=1, ge=1)
    """GPUs of each node."""
    cpus: int = Field(default=1, ge=1)
    """Processors of each node."""
    memory: Size | None = None
    """Host memory in bytes; None leaves it to the site."""
    time: Duration
    """Time limit in seconds."""
    scratch: Size | None = None
    """Room the run needs below the cluster's scratch root, in bytes."""
    recipe: Line | None = None
    """The hyperparameters of the bundled trainer."""
    total_steps: int | None = Field(default=None, ge=1)
    """Environment steps over all tasks."""
    num_envs: int | None = Field(default=None, ge=1)
    """Environments that step together."""
    precision: Literal["fp32", "tf32", "bf16"]
    """Of matrix products. Left out: "tf32" when the profile names a GPU, else "fp32"."""
    device: Literal["auto", "cpu", "cuda"]
    """Left out: "cuda" when the profile names a GPU, else "auto"."""
    eval_every: int | None = Field(default=None, ge=1)
    """Environment steps between evaluations."""
    eval_episodes: int | None = Field(default=None, ge=1)
    """Episodes per task of one evaluation; None leaves it to the recipe."""
    stop_at: float | None = Field(default=None, allow_inf_nan=False)
    """Mean success, 0 to 1, or return without success: two evaluations in a row that reach it end the run."""
    checkpoint_every: int | None = Field(default=None, ge=1)
    """Environment steps between checkpoints."""
    seed: int = Field(default=1, ge=0)
    """The seed of a run that is given none."""
    threads: int | None = Field(default=None, ge=1)
    """OMP_NUM_THREADS and MKL_NUM_THREADS; None sets neither, and the trainer takes as many as pay off."""
    workers: int | None = Field(default=None, ge=0)
    """Environment worker processes; None lets the trainer choose, 0 steps them in its own process."""
    mujoco_gl: Literal["egl", "osmesa", "glfw"] | None = None
    """MUJOCO_GL; left out: "egl" when the profile names a GPU, else not set."""
    env: Environment = Field(default_factory=dict)
    """Environment variables of the program."""
    program: Program | None = None
    """What to run instead of the project's program."""
    until_done: bool | None = None
    """Go on past the time limit; None follows the project."""
    signal: Literal["USR1", "USR2", "TERM", "INT", "none"] | None = None
    """Sent before the time limit; None is USR1 for training, nothing for a program that may not know it."""
    signal_before: Duration = Field(default="2m", validate_default=True)
    """How long before the time limit the signal is sent, in seconds; a fifth of the limit at most."""
    retry: Retry | None = None
    """What is tried again; None follows the project."""
    sbatch: NativeOptions = Field(default_factory=dict)
    """Options of its jobs, over those of the cluster."""

    @model_validator(mode="before")
    @classmethod
    def _follow_gpu(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        gpu = None if data.get("gpu") == "none" else data.get("gpu")
        derived = {"device": "auto", "precision": "fp32"}
        if gpu is not None:
            derived = {"device": "cuda", "precision": "tf32", "mujoco_gl": "egl"}
        return {**derived, **data, "gpu": gpu}

    @model_validator(mode="after")
    def _nodes_once(self) -> Profile:
        if "nodes" in self.model_fields_set and self.nodes > 1 and self.native_nodes:
            raise ValueError(f"sets nodes, and {NATIVE} nodes too; leave the latter out")
        return self

    @model_validator(mode="after")
    def _recipe_has_steps(self) -> Profile:
        if self.recipe is not None and self.total_steps is None:
            raise ValueError("has a recipe but no total_steps; set how long to train")
        return self

    @property
    def gpu_count(self) -> int:
        """GPUs of each node; 0 when no GPU type is named."""
        return self.gpus if self.gpu is not None else 0

    @property
    def native_nodes(self) -> bool:
        """Whether an option of the scheduler asks for nodes."""
        return not self.sbatch.keys().isdisjoint({"nodes", "N"})

    @property
    def ranks(self) -> int:
        """Processes that learn one run together: one for each GPU, or for each node without any."""
        return self.nodes * max(self.gpu_count, 1)


TRAINER_ONLY = (
    *("recipe", "num_envs", "precision", "eval_every", "eval_episodes", "stop_at", "checkpoint_every"),
    "workers",
)
"""Keys of a profile that only the bundled trainer reads, and then as arguments of its own."""


class Wandb(SettingsModel):
    """Where the runs appear in W&B. The key is never a setting: it comes from the environment or netrc.

    Online runs use the login that the user has on the cluster.
    """

    project: Line = "clusterkit"
    """The W&B project."""
    entity: Line | None = None
    """The W&B user or team; None is the user's own."""
    mode: Literal["offline", "online", "disabled"] = "offline"
    """Whether runs write to W&B's folders, to its server, or not at all."""


class ProjectTable(SettingsModel):
    """The user's own project: what runs by default, what travels, where results go."""

    name: Line
    """Left out: the name of the project folder."""
    default_cluster: Line = "local"
    """The cluster of runs that name none."""
    default_profile: Line = "local-demo"
    """The profile of runs that name none."""
    program: Program | None = None
    """Argv of what a run executes; None is the bundled trainer with the profile's settings."""
    environment: LocalPath | None = None
    """The file that says which packages the programs need; None lets them have what is there."""
    step: Line | None = None
    """The name of the steps in what `program` logs; None finds it."""
    exclude: Lines = ()
    """Patterns of files that stay here, besides those git ignores."""
    include: Lines = ()
    """Patterns of files that travel although git ignores them or they look like a secret."""
    results: LocalPath = Field(default="results", validate_default=True)
    """The folder of fetched results."""
    max_file_size: Size = Field(default="100M", validate_default=True)
    """Files above this size (bytes) do not travel without being asked for."""
    until_done: bool = False
    """Whether runs go on past their time limit."""
    retry: Retry = Retry()
    """What is tried again, unless the profile says."""
    wandb: Wandb = Wandb()
    """Where the runs appear in W&B."""
    trackers: TrackerPlaces = Field(default_factory=dict)
    """Where the metrics of fetched runs are copied to."""


class SecretsTable(SettingsModel):
    """The secrets that programs get in their environment; the values are never settings."""

    names: Annotated[tuple[EnvironmentName, ...], BeforeValidator(as_tuple)] = ()
    """Environment variables."""
    commands: Mapping[EnvironmentName, ProgramHere] = Field(default_factory=dict)
    """Argv of a program on this machine that prints the value, by variable."""

    @model_validator(mode="after")
    def _commands_have_names(self) -> SecretsTable:
        if other := next((name for name in self.commands if name not in self.names), None):
            raise ValueError(f"has a command for {other}, which is not among its names")
        return self


class Document(SettingsModel):
    """A whole merged settings document."""

    clusters: dict[Name, Cluster]
    """Clusters by name; `local` is this machine."""
    profiles: dict[Name, Profile]
    """Profiles by name; a shipped one may be changed."""
    project: ProjectTable
    """The user's own project."""
    secrets: SecretsTable = SecretsTable()
    """The secrets that programs get."""
    notify: Notify = Field(default_factory=Notify)
    """Notices of runs that have ended."""
