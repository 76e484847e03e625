"""Keys of a security key (FIDO), without the device: OpenSSH's own tests have a library that plays it."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROVIDER = Path("/usr/lib/openssh/regress/misc/sk-dummy/sk-dummy.so")
"""Plays a device that somebody touches at once."""
LINE = f"SecurityKeyProvider {PROVIDER}"
"""A line of ssh_config, without which ssh looks for a real device."""


def why_not() -> str | None:
    """What this machine lacks for such keys; None when nothing."""
    return None if PROVIDER.exists() else f"{PROVIDER.name} is missing (Debian: openssh-tests)"


def make_security_key(path: Path) -> Path:
    """A new key pair of kind ed25519-sk. Returns the file that stands for the private key."""
    argv = [
        "ssh-keygen",
        "-q",
        "-t",
        "ed25519-sk",
        "-w",
        str(PROVIDER),
        "-N",
        "",
        "-C",
        "test",
        "-f",
        str(path),
    ]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path
