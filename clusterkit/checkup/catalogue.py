"""All checks of `clusterkit doctor`, in order."""

from __future__ import annotations

from clusterkit.backends import backend_of_kind
from clusterkit.backends.checks import Check, CheckPlace, checks_of
from clusterkit.config.kinds import BUILT_IN

_LAPTOP = (
    *checks_of(
        CheckPlace.LAPTOP,
        ("python", "Python is 3.11, 3.12 or 3.13", ()),
        ("settings", "the settings are valid", ()),
        ("cluster", "a cluster is configured", ("settings",)),
    ),
    *checks_of(
        CheckPlace.LAPTOP,
        ("profile", "the cluster has what the profile requests", ("settings",)),
        of_profile=True,
    ),
    *checks_of(
        CheckPlace.LAPTOP,
        ("ledger", "the ledger is intact", ("settings",)),
        ("code", "the code and the program can be sent", ("settings",)),
        ("disk-here", "2 GiB are free (fails below 100 MiB)", ("settings",)),
        ("image-here", "the image is here or deployed", ("settings", "ledger")),
        ("wandb-login", "a W&B key and client are present", ("settings",)),
        ("wandb-server", "the W&B server accepts the key", ("settings",)),
        ("rsync-here", "rsync is installed", ("settings",)),
        ("ssh-config", "`ssh -G` resolves the host", ("settings",)),
        ("ssh-key", "an SSH key exists that only you can read", ("ssh-config",)),
        ("kept-login", "kept logins answer", ("ssh-config",)),
        ("reachable", "the host answers as an SSH server", ("ssh-config",)),
        ("host-key", "the host key is known and unchanged", ("reachable",)),
        ("login", "you can log in (warns above 10 s)", ("host-key",)),
    ),
)
_LOGIN = checks_of(
    CheckPlace.LOGIN,
    ("shell-quiet", "start-up files print nothing and finish", ("login",)),
    ("clock", "its clock is within 30 s (fails from 5 min)", ("login",)),
    ("tools", "required programs are installed", ("login",)),
    ("rsync-there", "rsync is installed", ("login",)),
    ("runtime-there", "the container runtime is found", ("login",)),
)
_STORAGE = checks_of(
    CheckPlace.STORAGE,
    ("root", "the work root is writable, or can be made", ("login",)),
    ("owners", "no other user can change what runs as you", ("login",)),
    ("modes", "no other user can read runs, images or code; `group` can read its part", ("login", "root")),
    ("room", "1 GiB is free in every root, quota included (fails below 64 MiB)", ("login",)),
    ("image-there", "the image is on the cluster", ("login", "image-here")),
    ("image-whole", "its SHA-256 is correct (not read for more than a minute)", ("image-there",)),
)
_NODE = checks_of(
    CheckPlace.NODE,
    ("job", "a test job starts", ("submit", "root", "owners")),
    ("root-shared", "the node sees the work root", ("job",)),
    ("prelude", "the prelude's lines work", ("root-shared",)),
    ("runtime", "the container runtime is found", ("root-shared",)),
    ("image-visible", "the node sees the whole image", ("root-shared", "image-there")),
    ("scratch", "scratch is writable and large enough", ("root-shared",)),
    ("binds", "the folders to bind exist", ("root-shared",)),
    ("gpu", "the requested GPUs are visible", ("root-shared",)),
    ("driver", "the driver is at least 450, 525 or 580 for CUDA 11, 12 or 13", ("root-shared", "gpu")),
    ("mps", "NVIDIA MPS is available, if enabled", ("root-shared", "gpu")),
    ("shared-memory", "shared memory has 64 MiB, and 16 MiB per worker", ("root-shared",)),
    ("node-clock", "its clock agrees with the login node's", ("root-shared",)),
    ("internet", "the node reaches W&B, if `online`", ("root-shared",)),
    of_profile=True,
    of_gpu=("gpu", "driver", "mps"),
)
_CONTAINER = checks_of(
    CheckPlace.CONTAINER,
    ("container", "the image and its Python start", ("runtime", "image-visible")),
    ("temporary", "temporary storage is writable", ("container",)),
    ("torch", "PyTorch can be imported", ("container",)),
    ("cuda", "PyTorch computes on the GPU", ("torch", "gpu")),
    ("rendering", "MuJoCo renders without a display", ("container",)),
    ("wandb", "W&B can be imported", ("container",)),
    ("nodes", "the nodes of a run reach each other", ("container",)),
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
