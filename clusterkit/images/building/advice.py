"""Explains the output of a failed build. Pure."""

from __future__ import annotations

import re

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LEVEL = re.compile(r"(FATAL|ERROR|WARNING|INFO):")
_TELLING = re.compile(r"FATAL|ERROR|error:|\bE: |AssertionError|ModuleNotFoundError|No space left|denied")

_SUBUID = (
    "the account has only one user id inside a container, and the definition needs more: ask for entries "
    "in /etc/subuid and /etc/subgid (`name:100000:65536`), build elsewhere, or convert a Docker image"
)
_NO_NETWORK = (
    "the machine that builds cannot reach the internet: build where it can, then `clusterkit deploy`; "
    "or convert an archive made elsewhere (`docker save`): --from docker-archive:FILE"
)
_ADVICE = (
    (
        r"no space left on device|disk quota exceeded",
        "room is needed for the unpacked files as well (5 GB, with CUDA 15): set APPTAINER_TMPDIR here, or "
        "`scratch` of the cluster, to a larger disk",
    ),
    (
        r"DO NOT MATCH THE HASHES",
        "the package index serves files other than the locked ones: do not trust it",
    ),
    (
        r"No matching distribution found|Could not find a version that satisfies",
        "the base needs Python 3.11 to 3.13 and a package index (PyPI) it can reach",
    ),
    (
        r"temporary failure (in name resolution|resolving)|dial tcp|Could not resolve|"
        r"Network is unreachable|no route to host|Failed to establish a new connection|no such host",
        _NO_NETWORK,
    ),
    (
        r"toomanyrequests|unauthorized|authentication required|manifest unknown|the resource is denied",
        "the registry refuses the image: check its name, or log in (`apptainer remote login`)",
    ),
    (
        r"cannot connect to the Docker daemon|docker daemon|docker\.sock",
        "start Docker, or convert an archive: `docker save NAME -o FILE`, then --from docker-archive:FILE",
    ),
    (
        r"Requesting capability set",
        "root lacks some capabilities here (a container?): build as an ordinary user, or give root lines in "
        "/etc/subuid and /etc/subgid",
    ),
    (
        r"/etc/sub[ug]id|newuidmap|chown.*Invalid argument|set(groups|egid|euid).*(Invalid|Operation not)|"
        r"Could not setup fakeroot|user namespace",
        _SUBUID,
    ),
)


def last_lines(log: str, count: int = 8) -> list[str]:
    """The end of a build's output, without the mksquashfs usage page that Apptainer adds to an error."""
    kept: list[str] = []
    skipping = False
    for line in _COLOUR.sub("", log).splitlines():
        if _LEVEL.match(line.strip()):
            skipping = False
        elif line.startswith("SYNTAX:"):
            skipping = True
        if line.strip() and not skipping:
            kept.append(line.rstrip())
    return kept[-count:]


def cause(log: str) -> str:
    """The most informative line: a known one, or else the last that names an error."""
    lines = [line.strip() for line in last_lines(log, 200)]
    known = [line for line in lines if any(_says(line, pattern) for pattern, _ in _ADVICE)]
    telling = [line for line in lines if _TELLING.search(line)]
    inner = [line for line in telling if not line.startswith("FATAL")]
    return (known or inner or telling or lines or ["it printed nothing"])[-1]


def advice(log: str) -> str | None:
    """The remedy for a known cause."""
    said = cause(log)
    return next((hint for pattern, hint in _ADVICE if _says(said, pattern)), None)


def _says(line: str, pattern: str) -> bool:
    return re.search(pattern, line, re.IGNORECASE) is not None
