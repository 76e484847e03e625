"""Judges the programs and settings of this machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterkit.backends.checks import Verdict, passed, warned

OLDEST_PYTHON, FIRST_UNTRIED_PYTHON = (3, 11), (3, 14)
OLDEST_RSYNC = (3, 1)
"""The first version with --info=progress2."""


def python(version: tuple[int, int], text: str) -> Verdict:
    """The interpreter."""
    if OLDEST_PYTHON <= version < FIRST_UNTRIED_PYTHON:
        return passed(text)
    return warned(f"{text} is not one of 3.11 to 3.13", "python3.12 -m venv .venv")


def settings(files: Sequence[str], cluster: str, profiles: Sequence[str]) -> Verdict:
    """The verdict on readable settings."""
    where = ", ".join(files) or "no settings file, only what is built in"
    names = f"profile{'s' if len(profiles) > 1 else ''} {', '.join(profiles)}"
    return passed(f"{where}; cluster {cluster}, {names}")


def rsync_version(said: str, where: str) -> Verdict:
    """The version from `rsync --version`; empty if missing."""
    found = re.search(r"version\s+v?(\d+)\.(\d+)(\S*)", said)
    install = "apt install rsync, dnf install rsync or brew install rsync"
    if not found:
        if "openrsync" in said:
            return warned(f"{where} has openrsync; files travel by SFTP where it lacks an option", install)
        return warned(f"no rsync on {where}: files travel by SFTP, and changed files whole", install)
    version = f"rsync {found[1]}.{found[2]}{found[3]}"
    if (int(found[1]), int(found[2])) < OLDEST_RSYNC:
        return warned(f"{version} is older than 3.1", install)
    return passed(version)
