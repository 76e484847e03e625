"""Keys of a security key (FIDO), without the device: OpenSSH's own tests have a library that plays it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.needs import SECURITY_KEY, need

LINE = f"SecurityKeyProvider {SECURITY_KEY}"
"""A line of ssh_config, without which ssh looks for a real device."""


def make_security_key(path: Path) -> Path:
    """A new key pair of kind ed25519-sk. Returns the file that stands for the private key."""
    need("a security key")
    argv = [
        "ssh-keygen",
        "-q",
        "-t",
        "ed25519-sk",
        "-w",
        str(SECURITY_KEY),
        "-N",
        "",
        "-C",
        "test",
        "-f",
        str(path),
    ]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path
