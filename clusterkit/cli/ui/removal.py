"""The question before something is removed for good."""

from __future__ import annotations

import sys

from clusterkit.asking import agree
from clusterkit.cli.ui.console import note
from clusterkit.errors import ConfigError
from clusterkit.units import format_bytes


def may_remove(command: str, size: int, where: str, *, dry_run: bool, yes: bool) -> bool:
    """Whether what has just been shown may go.

    Args:
        command: who asks.
        size: bytes that would be freed.
        where: on which clusters.
        dry_run: only say what would happen.
        yes: it was agreed to before.

    Raises:
        ConfigError: nobody agreed, and there is no terminal to ask on.
    """
    if dry_run:
        note(f"would free {format_bytes(size)} on {where}; nothing was removed")
        return False
    if yes:
        return True
    if not sys.stdin.isatty():
        cause = f"{command} asks before it removes anything, and there is no terminal to ask on"
        raise ConfigError(cause, hint="use --yes or --dry-run")
    agreed = agree(f"Remove this on {where} and free {format_bytes(size)}?")
    if not agreed:
        note("nothing was removed")
    return agreed
