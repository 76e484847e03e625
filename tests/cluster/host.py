"""What the machine that runs the tests must offer, and the Debian mirror it already uses."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("mmdebstrap", "ip", "nsenter", "ssh", "rsync")
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")

_PROBE = """
set -e
ip link add name probe type bridge
ip link add name left type veth peer name right
mkdir "$1/lower" "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/root"
"""


class TestbedError(Exception):
    """The test cluster cannot be built, started or used as asked."""

    __test__ = False  # pytest takes names that begin with Test for test classes


class UnavailableError(TestbedError):
    """This machine does not offer what the test cluster needs."""


def prepare(scratch: Path) -> None:
    """Check this machine: its programs, and the kernel's features in throw-away namespaces.

    Raises:
        UnavailableError: a program is missing, or the kernel refuses something the nodes need.
    """
    if sys.platform != "linux":
        raise UnavailableError(f"the test cluster needs Linux namespaces, and this is {sys.platform}")
    if os.geteuid() != 0:
        raise UnavailableError("the test cluster needs root, for namespaces and overlay mounts")
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise UnavailableError(
            f"the test cluster needs {', '.join(missing)}; `make test-cluster` installs them"
        )
    probe = ["unshare", *NAMESPACES, "--fork", "sh", "-c", _PROBE, "sh", str(scratch)]
    tried = subprocess.run(probe, capture_output=True, text=True)
    if tried.returncode:
        raise UnavailableError(f"no namespaces, bridges or overlay mounts here: {last_line(tried.stderr)}")


def debian_mirror() -> str:
    """The Debian mirror in this machine's apt sources, or `$CLUSTERKIT_DEBIAN_MIRROR`.

    Raises:
        UnavailableError: there is neither.
    """
    if named := os.environ.get("CLUSTERKIT_DEBIAN_MIRROR"):
        return named
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)"], capture_output=True, text=True, check=True
    )
    mirrors = sorted({uri for uri in listed.stdout.split() if re.search(r"/debian/?$", uri)})
    if not mirrors:
        raise UnavailableError("no Debian mirror in the apt sources; name one in CLUSTERKIT_DEBIAN_MIRROR")
    return mirrors[0]


def debian_keyring() -> Path:
    """Debian's archive keys. Raises UnavailableError when the debian-archive-keyring package is missing."""
    for path in sorted(Path("/usr/share/keyrings").glob("debian-archive-keyring.*")):
        return path
    raise UnavailableError("Debian's archive keys are missing; install debian-archive-keyring")


def last_line(text: str) -> str:
    """The last non-empty line of a program's output."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no output"
