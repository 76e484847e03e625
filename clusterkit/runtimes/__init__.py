"""Container runtimes: what clusterkit asks of one, and the one that the setting `container` names.

A package may add a runtime: an entry point of the group `clusterkit.runtimes`, whose name is that value and
whose value is a module with a `RUNTIME`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from clusterkit.resources import TEMPLATES

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    BUILDER: ImageBuilder

ENTRY_POINTS = "clusterkit.runtimes"


@dataclass(frozen=True)
class ImageFormat:
    """The format of the images that a runtime starts."""

    name: str
    offset: int
    magic: bytes
    """What a file of this format has at the offset."""
    file: str
    """The default name of a project's image."""
    maker: str
    """The command that makes one."""
    convert: str
    """How a file of another format becomes one."""
    architecture: Callable[[Path], str] = lambda _: ""
    """Returns what `uname -m` says of the machines that a file of this format is for; empty if unknown."""


class Runtime:
    """Builders and texts for one way to start the programs of a cluster.

    They do no I/O, but for what reads the architecture of an image.

    `template` extends its value `frame` (program.sh.j2 in jobs of runs, examine.sh.j2 in doctor's) and fills
    these blocks: `runtime` refuses a node without the runtime, `passing` defines `pass NAME VALUE`, `start`
    begins the array `command`, and `finish` ends it with the image; the program's own words follow.
    """

    name: str
    """The value of the cluster's setting `container`."""
    title: str
    """The name for people."""
    image: ImageFormat | None
    """None where programs run without a container."""
    registry = ""
    """How names of images begin that each job may take from a registry; empty where none can."""
    in_step = False
    """Whether the program is a step of its own in the job: it runs on one node, signals do not reach it by
    the process that waits for it, and what the kernel kills is not counted for the job."""
    find = ""
    """Bash that prints what the runtime is, and fails where it is missing."""
    survey = ""
    """POSIX sh that tells `init` about the runtime on a login node, with the functions of
    `clusterkit.probes`; empty where nothing there tells."""
    enter = ""
    """Bash that prepares `command` and `environment` of a running program for `clusterkit shell`; $terminal
    is the value of TERM. It must leave those of other runtimes as they are."""
    on_nodes = ""
    """Bash words before the program with which `doctor` starts one on each of several nodes."""
    install = ""
    """What a user does where a node lacks it."""
    unseen = ""
    """What `init` advises where it may be what the site has, although the survey cannot tell."""
    make_image = ""
    """What makes a missing image; empty where `clusterkit build` does."""
    says: ClassVar[Mapping[str, str]] = {}
    """By the name of a cause of `why`, the pattern of this runtime's words about it. That of `bind-missing`
    has groups with the missing folder; that of `speaker` is what precedes a message."""

    @property
    def contained(self) -> bool:
        """Whether programs run in a container."""
        return self.image is not None

    @property
    def builds(self) -> bool:
        """Whether `clusterkit build` makes its images."""
        return self.contained and not self.make_image

    @property
    def template(self) -> Path:
        """The template of what starts a program."""
        return TEMPLATES / "runtimes" / f"{self.name}.sh.j2"

    def check_settings(self, *, kind: str, here: bool, mps: bool, registry_image: str | None) -> None:
        """Raises ValueError if a cluster's other settings exclude the runtime.

        Args:
            kind: the cluster's kind.
            here: whether its jobs are processes of this machine.
            mps: whether the runs of a pack use its GPU through NVIDIA MPS.
            registry_image: the image that each job takes from a registry.
        """

    def check_mounts(self, paths: Iterable[str]) -> None:
        """Raises ConfigError for a path that the runtime cannot mount."""

    def mount(self, bind: str) -> str:
        """Returns a mount, `source[:target[:options]]`, as the runtime takes it."""
        return bind

    def add(self, mount: str) -> str:
        """Returns Bash that adds a mount, between the blocks `start` and `finish`.

        Args:
            mount: as the runtime takes it, and as written between double quotes.
        """
        raise NotImplementedError

    def missing(self, host: str, table: str) -> tuple[str, str]:
        """Returns the evidence and the cure where it is missing on a node.

        Args:
            host: the node's name.
            table: the cluster's table in the settings, e.g. `[clusters.uni]`.
        """
        return (
            f"{self.name} is not on PATH on {host}",
            f'prelude = ["module load {self.name}"] in {table}, or container = ... for another runtime',
        )


class ImageBuilder(Runtime):
    """A runtime whose program also builds images."""

    image: ImageFormat
    commands: tuple[str, ...]
    """The names of its program, the likelier one first."""
    gpu_options: ClassVar[Mapping[str, str]]
    """By who made them, what makes a node's GPUs available."""
    architecture_at: int
    """The byte of an image at which two digits tell its architecture."""

    def architecture_of(self, digits: str) -> str:
        """Returns what `uname -m` says of the machines that they stand for; empty if unknown."""
        raise NotImplementedError

    def temporary(self, folder: str) -> dict[str, str]:
        """Returns the variables that have it, by any of its names, unpack images in a folder."""
        return {f"{command.upper()}_TMPDIR": folder for command in self.commands}


class NoContainer(Runtime):
    """Programs run as they are, with the node's own Python."""

    name, title, image = "none", "no container", None
    unseen = 'where there is none, set `container = "none"` and `python`'


DEFAULT = "apptainer"
NONE = NoContainer()
_MODULES = {
    DEFAULT: ("clusterkit.runtimes.apptainer", "BUILDER"),
    "singularity": ("clusterkit.runtimes.apptainer", "SINGULARITY"),
    "pyxis": ("clusterkit.runtimes.pyxis", "RUNTIME"),
}
"""Module and object of each of our own, but for `NONE`."""
BUILT_IN = (*_MODULES, NONE.name)
"""The names of our own."""


def __getattr__(name: str) -> ImageBuilder:
    """Imports `BUILDER` where it is first used: the runtime whose images `clusterkit build` makes."""
    if name != "BUILDER":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    builder = runtime_of(DEFAULT)
    assert isinstance(builder, ImageBuilder)
    return builder


@cache
def runtime_of(name: str) -> Runtime:
    """Returns the runtime with this name.

    Raises:
        ValueError: there is no such runtime; the message lists all of them.
    """
    if name == NONE.name:
        return NONE
    if name in _MODULES:
        module, attribute = _MODULES[name]
        own: Runtime = getattr(import_module(module), attribute)
        return own
    added = {point.name: point for point in _added()}
    if name not in added:
        *most, last = map(repr, (*BUILT_IN, *added))
        raise ValueError(f"must be {', '.join(most)} or {last}, not {name!r}")
    runtime: Runtime = added[name].load().RUNTIME
    return runtime


@cache
def all_runtimes() -> tuple[Runtime, ...]:
    """Returns the built-in runtimes and those that packages add, except those that cannot be loaded."""
    added: list[Runtime] = []
    for point in _added():
        with suppress(Exception):  # whatever is wrong with it, most commands are not about it
            added.append(point.load().RUNTIME)
    return (*map(runtime_of, BUILT_IN), *added)


def _added() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
