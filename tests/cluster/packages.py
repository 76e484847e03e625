"""Debian's packages that the tests of SSH, Slurm, Kerberos and Apptainer want of this machine.

`python -m tests.cluster.packages` says what it is about to install and build, and installs it as root. The
standard library is all it needs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tests.cluster.cache import cache_root
from tests.cluster.host import UnavailableError, last_line

PACKAGES = [
    "bubblewrap",
    "busybox",
    "csh",
    "debootstrap",
    "fish",
    "g++",
    "gcc",
    "git",
    "iproute2",
    "iptables",
    "krb5-admin-server",
    "krb5-kdc",
    "krb5-user",
    "ksh",
    "libc6-dev",
    "libegl1",
    "libosmesa6",
    "libpam-oath",
    "make",
    "mmdebstrap",
    "openssh-client",
    "openssh-server",
    "openssh-tests",
    "procps",
    "python3-fusepy",
    "rsync",
    "shellcheck",
    "tcsh",
    "util-linux",
    "zsh",
    "zstd",
]


def missing() -> list[str]:
    """Returns the packages that are not installed.

    Raises:
        UnavailableError: this is not Debian, or a system like it.
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-query")):
        raise UnavailableError("the tests on a cluster need Debian or Ubuntu: there is no apt-get")
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *PACKAGES]
    shown = subprocess.run(query, capture_output=True, text=True).stdout
    installed = {line.split()[0] for line in shown.splitlines() if line.endswith(" installed")}
    return [name for name in PACKAGES if name not in installed]


def install(packages: list[str]) -> None:
    """Installs packages with apt-get.

    Raises:
        UnavailableError: it cannot be done; the message holds apt-get's last line.
    """
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    argv = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    subprocess.run(["apt-get", "update"], env=env, capture_output=True)  # the lists may be missing or old
    done = subprocess.run(argv, env=env, capture_output=True, text=True)
    if done.returncode:
        raise UnavailableError(f"cannot install {', '.join(packages)}: {last_line(done.stderr)}")


def main() -> int:
    """Returns the exit code: 1 where the tests on a cluster cannot be run."""
    try:
        if os.geteuid() != 0:
            raise UnavailableError("the tests on a cluster need root, for packages, namespaces and mounts")
        if packages := missing():
            print(f"installing on this machine, with apt-get: {' '.join(packages)}", flush=True)
        if not cache_root().exists():
            print(f"building in {cache_root()}: Debian with Slurm and Apptainer (2.5 GB)", flush=True)
        if packages:
            install(packages)
    except UnavailableError as reason:
        print(f"{reason}; `make test` runs all others", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
