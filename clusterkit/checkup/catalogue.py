"""All checks of `clusterkit doctor`, in order."""

from __future__ import annotations

from clusterkit.backends import backend_of_kind
from clusterkit.backends.checks import Check, CheckPlace, checks_of
from clusterkit.config.kinds import BUILT_IN

_LAPTOP = (
    *checks_of(
        CheckPlace.LAPTOP,
        ("python", "Python is one that clusterkit runs on", ()),
        ("settings", "the settings can be read, and the cluster and the profiles exist", ()),
        ("cluster", "a cluster is configured at all", ("settings",)),
    ),
    *checks_of(
        CheckPlace.LAPTOP,
        ("profile", "the cluster can give what the profile asks for", ("settings",)),
        of_profile=True,
    ),
    *checks_of(
        CheckPlace.LAPTOP,
        ("ledger", "the ledger is whole and of this version", ("settings",)),
        ("code", "the code can travel, and the program is part of it", ("settings",)),
        ("disk-here", "there is room for results", ("settings",)),
        ("image-here", "the image that runs use is here, or was deployed", ("settings", "ledger")),
        ("wandb-login", "there is a W&B key and a client that uploads", ("settings",)),
        ("wandb-server", "the W&B server answers and takes the key", ("settings",)),
        ("rsync-here", "rsync is installed on this machine", ("settings",)),
        ("ssh-config", "ssh knows the host of the cluster", ("settings",)),
        ("ssh-key", "there is a key to log in with, private to you", ("ssh-config",)),
        ("kept-login", "logins that are kept answer", ("ssh-config",)),
        ("reachable", "the host answers as an SSH server", ("ssh-config",)),
        ("host-key", "the host's key is known and has not changed", ("reachable",)),
        ("login", "the host lets you in, and how long that takes", ("host-key",)),
    ),
)
_LOGIN = checks_of(
    CheckPlace.LOGIN,
    ("shell-quiet", "the shell's start-up files print nothing and end at once", ("login",)),
    ("clock", "its clock and this machine's agree", ("login",)),
    ("tools", "the programs that clusterkit uses are there", ("login",)),
    ("rsync-there", "rsync is installed there", ("login",)),
    ("runtime-there", "the container runtime is there after the prelude", ("login",)),
)
_STORAGE = checks_of(
    CheckPlace.STORAGE,
    ("root", "the work root can be written to, or made", ("login",)),
    ("owners", "nobody else can change what runs as you", ("login",)),
    ("modes", "nobody else can look into runs, images and code", ("login", "root")),
    ("room", "disk and quota leave room in every root", ("login",)),
    ("image-there", "the image is in the cluster's store", ("login", "image-here")),
    ("image-whole", "its content has the SHA-256 it should have", ("image-there",)),
)
_NODE = checks_of(
    CheckPlace.NODE,
    ("job", "a job of two minutes with the profile's request starts", ("submit", "root", "owners")),
    ("root-shared", "the node sees the same work root as the login node", ("job",)),
    ("prelude", "the prelude's lines work on the node", ("root-shared",)),
    ("runtime", "the container runtime is there after the prelude", ("root-shared",)),
    ("image-visible", "the node sees the whole image", ("root-shared", "image-there")),
    ("scratch", "scratch is writable and large enough", ("root-shared",)),
    ("binds", "the folders that the container binds exist", ("root-shared",)),
    ("gpu", "the GPUs asked for are visible", ("root-shared",)),
    ("driver", "the driver is new enough for the image's CUDA", ("root-shared", "gpu")),
    ("mps", "NVIDIA MPS is there for packs to use", ("root-shared", "gpu")),
    ("shared-memory", "shared memory (/dev/shm) is large enough for the workers", ("root-shared",)),
    ("node-clock", "its clock and the login node's agree", ("root-shared",)),
    ("internet", "whether the node reaches the internet", ("root-shared",)),
    of_profile=True,
    of_gpu=("gpu", "driver", "mps"),
)
_CONTAINER = checks_of(
    CheckPlace.CONTAINER,
    ("container", "the image starts, with its Python", ("runtime", "image-visible")),
    ("temporary", "temporary files can be written", ("container",)),
    ("torch", "PyTorch can be imported", ("container",)),
    ("cuda", "PyTorch computes on the GPU", ("torch", "gpu")),
    ("rendering", "MuJoCo renders without a display", ("container",)),
    ("wandb", "W&B can be imported", ("container",)),
    of_profile=True,
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


def of_place(place: CheckPlace) -> tuple[Check, ...]:
    """The checks of one place in their order."""
    return tuple(check for check in CHECKS if check.place is place)
