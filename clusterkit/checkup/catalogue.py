"""All checks of `clusterkit doctor`, in order."""

from __future__ import annotations

from collections.abc import Iterable

from clusterkit.backends import backend_of_kind
from clusterkit.backends.checks import Check, CheckPlace
from clusterkit.config.kinds import BUILT_IN

_LAPTOP = (
    Check("python", CheckPlace.LAPTOP, "Python is one that clusterkit runs on"),
    Check("settings", CheckPlace.LAPTOP, "the settings can be read, and the cluster and the profiles exist"),
    Check("cluster", CheckPlace.LAPTOP, "a cluster is configured at all", ("settings",)),
    Check(
        "profile",
        CheckPlace.LAPTOP,
        "the cluster can give what the profile asks for",
        ("settings",),
        of_profile=True,
    ),
    Check("ledger", CheckPlace.LAPTOP, "the ledger is whole and of this version", ("settings",)),
    Check("code", CheckPlace.LAPTOP, "the code can travel, and the program is part of it", ("settings",)),
    Check("disk-here", CheckPlace.LAPTOP, "there is room for results", ("settings",)),
    Check(
        "image-here",
        CheckPlace.LAPTOP,
        "the image that runs use is here, or was deployed",
        ("settings", "ledger"),
    ),
    Check("wandb-login", CheckPlace.LAPTOP, "there is a W&B key and a client that uploads", ("settings",)),
    Check("wandb-server", CheckPlace.LAPTOP, "the W&B server answers and takes the key", ("settings",)),
    Check("rsync-here", CheckPlace.LAPTOP, "rsync is installed on this machine", ("settings",)),
    Check("ssh-config", CheckPlace.LAPTOP, "ssh knows the host of the cluster", ("settings",)),
    Check("ssh-key", CheckPlace.LAPTOP, "there is a key to log in with, private to you", ("ssh-config",)),
    Check("kept-login", CheckPlace.LAPTOP, "logins that are kept in the background answer", ("ssh-config",)),
    Check("reachable", CheckPlace.LAPTOP, "the host answers as an SSH server", ("ssh-config",)),
    Check("host-key", CheckPlace.LAPTOP, "the host's key is known and has not changed", ("reachable",)),
    Check("login", CheckPlace.LAPTOP, "the host lets you in, and how long that takes", ("host-key",)),
)
_LOGIN = (
    Check(
        "shell-quiet",
        CheckPlace.LOGIN,
        "the shell's start-up files print nothing and end at once",
        ("login",),
    ),
    Check("clock", CheckPlace.LOGIN, "its clock and this machine's agree", ("login",)),
    Check("tools", CheckPlace.LOGIN, "the programs that clusterkit uses are there", ("login",)),
    Check("rsync-there", CheckPlace.LOGIN, "rsync is installed there", ("login",)),
    Check("runtime-there", CheckPlace.LOGIN, "the container runtime is there after the prelude", ("login",)),
)
_STORAGE = (
    Check("root", CheckPlace.STORAGE, "the work root can be written to, or made", ("login",)),
    Check("owners", CheckPlace.STORAGE, "nobody else can change what runs as you", ("login",)),
    Check("modes", CheckPlace.STORAGE, "nobody else can look into runs, images and code", ("login", "root")),
    Check("room", CheckPlace.STORAGE, "disk and quota leave room in every root", ("login",)),
    Check("image-there", CheckPlace.STORAGE, "the image is in the cluster's store", ("login", "image-here")),
    Check("image-whole", CheckPlace.STORAGE, "its content has the SHA-256 it should have", ("image-there",)),
)
_NODE = (
    Check(
        "job",
        CheckPlace.NODE,
        "a job of two minutes with the profile's request starts",
        ("submit", "root", "owners"),
        True,
    ),
    Check(
        "root-shared", CheckPlace.NODE, "the node sees the same work root as the login node", ("job",), True
    ),
    Check("prelude", CheckPlace.NODE, "the prelude's lines work on the node", ("root-shared",), True),
    Check(
        "runtime", CheckPlace.NODE, "the container runtime is there after the prelude", ("root-shared",), True
    ),
    Check(
        "image-visible",
        CheckPlace.NODE,
        "the node sees the whole image",
        ("root-shared", "image-there"),
        True,
    ),
    Check("scratch", CheckPlace.NODE, "scratch is writable and large enough", ("root-shared",), True),
    Check("binds", CheckPlace.NODE, "the folders that the container binds exist", ("root-shared",), True),
    Check("gpu", CheckPlace.NODE, "the GPUs asked for are visible", ("root-shared",), True, True),
    Check(
        "driver",
        CheckPlace.NODE,
        "the driver is new enough for the image's CUDA",
        ("root-shared", "gpu"),
        True,
        True,
    ),
    Check("mps", CheckPlace.NODE, "NVIDIA MPS is there for packs to use", ("root-shared", "gpu"), True, True),
    Check(
        "shared-memory",
        CheckPlace.NODE,
        "shared memory (/dev/shm) is large enough for the workers",
        ("root-shared",),
        True,
    ),
    Check("node-clock", CheckPlace.NODE, "its clock and the login node's agree", ("root-shared",), True),
    Check("internet", CheckPlace.NODE, "whether the node reaches the internet", ("root-shared",), True),
)
_CONTAINER = (
    Check(
        "container",
        CheckPlace.CONTAINER,
        "the image starts, with its Python",
        ("runtime", "image-visible"),
        True,
    ),
    Check("temporary", CheckPlace.CONTAINER, "temporary files can be written", ("container",), True),
    Check("torch", CheckPlace.CONTAINER, "PyTorch can be imported", ("container",), True),
    Check("cuda", CheckPlace.CONTAINER, "PyTorch computes on the GPU", ("torch", "gpu"), True),
    Check("rendering", CheckPlace.CONTAINER, "MuJoCo renders without a display", ("container",), True),
    Check("wandb", CheckPlace.CONTAINER, "W&B can be imported", ("container",), True),
)

_SCHEDULER = tuple(
    check
    for kind in BUILT_IN
    if (checks := backend_of_kind(kind).checks()) is not None
    for check in checks.checks
)
CHECKS = (*_LAPTOP, *_LOGIN, *_STORAGE, *_SCHEDULER, *_NODE, *_CONTAINER)

_BY_NAME = {check.name: check for check in CHECKS}


def named(name: str) -> Check:
    """The check with this name."""
    return _BY_NAME[name]


def of_place(place: CheckPlace, names: Iterable[str] | None = None) -> tuple[Check, ...]:
    """The checks of one place in their order; with `names` only those."""
    return tuple(check for check in CHECKS if check.place is place and (names is None or check.name in names))
