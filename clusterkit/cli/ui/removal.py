"""Asks for confirmation before permanently removing something."""

from __future__ import annotations

import sys

from clusterkit.asking import agree
from clusterkit.cli.ui.console import note
from clusterkit.errors import ConfigError
from clusterkit.units import format_bytes


def may_remove(command: str, size: int, where: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether the listed items may be removed.

    Args:
        command: the name of the command that asks.
        size: bytes that would be freed.
        where: the names of the clusters.
        dry_run: only report what would happen.
        yes: the user already agreed, with --yes.

    Raises:
        ConfigError: --yes was not given, and there is no terminal to ask on.
    """
    if dry_run:
        note(f"would free {format_bytes(size)} on {where}; nothing was removed")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        cause = f"{command} asks before it removes anything, but there is no terminal"
        raise ConfigError(cause, hint="use --yes or --dry-run")
    agreed = agree(f"Remove this on {where} and free {format_bytes(size)}?")
    if not agreed:
        note("nothing was removed")
    return agreed
