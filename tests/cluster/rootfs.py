"""The root file system all nodes share, read-only: Debian with Slurm, OpenSSH, rsync, MariaDB and Apptainer.

And the smaller one that the trainer's image is built on. `python -m tests.cluster.rootfs` makes them;
the standard library is all it needs, so that it can run while packages are still being installed.

Apptainer is only in Debian's unstable branch and needs nothing else from there, so unstable is pinned below
the stable release and serves this one package.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.cluster.cache import cached, remove
from tests.cluster.host import (
    TestbedError,
    debian_keyring,
    debian_mirror,
    last_line,
    prepare,
)

SUITE = os.environ.get("CLUSTERKIT_TESTBED_SUITE", "trixie")
"""Whose Slurm the tests run on: 24.11 of trixie; `bookworm` has 22.05, `sid` 26.05."""
VERSIONS = {"bookworm": "22.05", "sid": "26.05"}
"""Further releases that a short path is run on, and their Slurm."""
WITHOUT_APPTAINER = ("bookworm",)
"""Releases that are too old for unstable's Apptainer: jobs run without a container there."""
BASE = "bookworm"
"""What the trainer's image is built on."""
MINIMAL = ("--mode=root", "--variant=minbase", "--format=directory")
USERS = {"alice": 2001, "bob": 2002}
PACKAGES = [
    "openssh-server",
    "openssh-client",
    "rsync",
    "munge",
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "mariadb-server-core",
    "mariadb-client-core",
    "libslurm-dev",
    "apptainer",
    "squashfuse",
    "fuse-overlayfs",
    "fuse3",
    "uidmap",
    "squashfs-tools",
    "debootstrap",
    "ca-certificates",
    "hostname",
    "iproute2",
    "netbase",
    "passwd",
    "procps",
    "python3-minimal",
    "tini",
    "util-linux",
    "zstd",
]

_PIN_UNSTABLE = r"""
mkdir -p "$1/etc/apt/preferences.d"
printf 'Package: *\nPin: release n=sid\nPin-Priority: 100\n' >"$1/etc/apt/preferences.d/unstable"
"""
# A password field of `*` cannot be used to log in; with the `!` of a new account sshd refuses keys as well.
_ADD_USERS = "\n".join(
    [
        *(
            f'chroot "$1" groupadd -g {uid} {name}; '
            f'chroot "$1" useradd -M -N -u {uid} -g {uid} -s /bin/bash -p "*" {name}'
            for name, uid in USERS.items()
        ),
        'chroot "$1" usermod -p "*" root',
        'chroot "$1" useradd -r -d /var/lib/mysql -s /usr/sbin/nologin mysql',
        'rm -f "$1"/etc/ssh/ssh_host_* "$1"/etc/munge/munge.key',
    ]
)
_MAKE_DATABASE = (
    'chroot "$1" mariadb-install-db --user=mysql --datadir=/var/lib/mysql --skip-test-db '
    "--innodb-log-file-size=8M --auth-root-authentication-method=socket"
)


def rootfs(suite: str = SUITE) -> Path:
    """Folder with the root file system, built in about half a minute the first time.

    Args:
        suite: Debian's release.

    Raises:
        TestbedError: it cannot be built; the message holds the builder's last line.
    """
    said = [suite, *_packages(suite), _PIN_UNSTABLE, _ADD_USERS, _MAKE_DATABASE]
    return cached("rootfs", said, partial(_build, suite))


def _packages(suite: str) -> list[str]:
    if suite not in WITHOUT_APPTAINER:
        return PACKAGES
    # whose smallest Python has too little of its library for launch.py
    return [*(name for name in PACKAGES if name not in ("apptainer", "python3-minimal")), "python3"]


def base() -> Path:
    """Debian as a folder, for a definition that builds on one.

    The trainer's definition could start at debootstrap itself. Apptainer 1.4 would then keep a core busy
    until the build ends (a loop in its debootstrap source that a `break` does not leave), and new packages
    would mean a new Debian as well.

    Raises:
        TestbedError: it cannot be built; the message holds the builder's last line.
    """
    return cached("base", [*MINIMAL, BASE], _build_base)


def _build_base(folder: Path) -> None:
    debian(folder, [BASE])
    remove(folder / "dev")  # a user's build cannot copy devices
    (folder / "dev").mkdir()


def _build(suite: str, folder: Path) -> None:
    options = [
        f"--include={','.join(_packages(suite))}",
        '--aptopt=Acquire::Check-Valid-Until "false"',  # mirrors of unstable may lag behind
        '--aptopt=APT::Install-Recommends "false"',
        '--aptopt=Acquire::Languages "none"',
        *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale")),
        f"--setup-hook={_PIN_UNSTABLE}",
        f"--customize-hook={_ADD_USERS}",
        f"--customize-hook={_MAKE_DATABASE}",
    ]
    newest = [] if suite in WITHOUT_APPTAINER else ["sid"]
    debian(folder, [*dict.fromkeys([suite, *newest])], options)


def debian(folder: Path, suites: Sequence[str], options: Sequence[str] = ()) -> None:
    """Make Debian's smallest system in a folder.

    Args:
        folder: is made.
        suites: releases that packages come from; the first one is the system's.
        options: more of mmdebstrap's.

    Raises:
        TestbedError: it cannot be made; the message holds the builder's first error.
    """
    mirror, keyring = debian_mirror(), debian_keyring()
    sources = [f"deb [signed-by={keyring}] {mirror} {suite} main" for suite in suites]
    argv = ["mmdebstrap", *MINIMAL, *options, suites[0], str(folder), *sources]
    built = subprocess.run(argv, capture_output=True, text=True)
    if built.returncode:
        errors = [line for line in built.stderr.splitlines() if line.startswith("E:")]
        raise TestbedError(
            f"mmdebstrap cannot make Debian: {errors[0] if errors else last_line(built.stderr)}"
        )


def main() -> int:
    """Build what is not in the cache yet; returns the exit code."""
    try:
        with tempfile.TemporaryDirectory() as scratch:
            prepare(Path(scratch))
        rootfs()
        base()
    except TestbedError as reason:
        print(f"no test cluster: {reason}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
