"""`clusterkit shell`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger
from clusterkit.cli.ui.console import note
from clusterkit.errors import RunError

if TYPE_CHECKING:
    from clusterkit.runs.inside import Inside


def shell(
    name: RunArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="After `--`: run this instead of a shell.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Open a shell beside a running program.

    In the job's allocation and container, with the program's environment and working directory.
    """
    from clusterkit.commands.shell import shell as open_shell

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)

    def on_entry(place: Inside) -> None:
        if not command:
            where = f"on {place.state.node}, " if place.state.node else ""
            note(f"{place.run.run_id}: {where}job {place.job_id}, attempt {place.attempt}; Ctrl-D leaves it")

    terminal = own_terminal(needed=not command)
    status = open_shell(settings, run, command or (), terminal=terminal, on_entry=on_entry)
    raise typer.Exit(status if status >= 0 else 128 - status)


def own_terminal(*, needed: bool) -> str | None:
    """Returns the value of TERM if this process has a terminal; None otherwise.

    Raises:
        RunError: a terminal is needed, and there is none.
    """
    if sys.stdin.isatty() and sys.stdout.isatty():
        return os.environ.get("TERM") or "dumb"
    if needed:
        raise RunError(
            "a shell needs a terminal, and here is none",
            hint="name the command to run: clusterkit shell RUN -- COMMAND",
        )
    return None
