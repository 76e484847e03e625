"""`clusterkit shell`."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, load, open_ledger
from clusterkit.cli.guide import Command
from clusterkit.cli.ui.console import note
from clusterkit.errors import RunError

if TYPE_CHECKING:
    from clusterkit.interactive.inside import Inside


class ShellCommand(Command):
    """Takes words after `--` as the command, also when no run is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Returns to the command what stands after `--` but was read as the run."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest = super().parse_args(ctx, args)
        if behind and len(ctx.params.get("command") or ()) < len(behind):
            ctx.params |= {"name": "last", "command": behind}
        return rest


COMMAND = ShellCommand


def shell(
    name: RunArgument = "last",
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="After `--`: run this command instead of a shell."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Open a shell next to a running program.

    It runs in the job's allocation and container, with the program's environment and working directory.
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


def own_terminal(
    *, needed: bool, hint: str = "name the command to run: clusterkit shell RUN -- COMMAND"
) -> str | None:
    """Returns the value of TERM if this process has a terminal; None otherwise.

    Raises:
        RunError: a terminal is needed, and there is none.
    """
    if sys.stdin.isatty() and sys.stdout.isatty():
        return os.environ.get("TERM") or "dumb"
    if needed:
        raise RunError(
            "a shell needs a terminal, and there is none",
            hint=hint,
        )
    return None
