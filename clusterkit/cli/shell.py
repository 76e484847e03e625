"""`clusterkit shell`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clusterkit.cli import options
from clusterkit.cli.guide import Command
from clusterkit.cli.ui.console import note
from clusterkit.errors import RunError
from clusterkit.interactive.entering import SHELL, enter_argv
from clusterkit.project import load, open_ledger

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.interactive.inside import Inside
    from clusterkit.runs.ledger import LedgerRun


class ShellCommand(Command):
    """Takes words after `--` as the command, also when no run is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Returns to the command what stands after `--` but was read as the run."""
        behind = args[args.index("--") + 1 :] if "--" in args else []
        rest = super().parse_args(ctx, args)
        if behind and "command" in ctx.params and len(ctx.params.get("command") or ()) < len(behind):
            ctx.params |= {"name": "last", "command": behind}
        return rest


COMMAND = ShellCommand


def shell(
    name: options.Run = "last",
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="After `--`: run this command instead of a shell."),
    ] = None,
    config: options.Config = None,
) -> None:
    """Open a shell next to a running program.

    It runs in the job's allocation and container, with the program's environment and working directory.

    Examples:
      # in the newest run
      clusterkit shell
      # run one command and return its exit status
      clusterkit shell last -- nvidia-smi

    See also: clusterkit top, clusterkit forward
    """
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


def open_shell(
    settings: Settings,
    run: LedgerRun,
    command: Sequence[str],
    *,
    terminal: str | None,
    on_entry: Callable[[Inside], None],
) -> int:
    """Runs a command beside the program: same node, container, environment, working directory.

    Args:
        settings: of the project.
        run: the running run.
        command: its argv; empty for a shell.
        terminal: the value of TERM if the command gets this process's terminal; None without a terminal.
        on_entry: called once the run is known to be running.

    Returns:
        The command's exit status; minus the signal number for a signal.

    Raises:
        ConfigError: the command shows a secret's value.
        RunError: the run is not running, or its end or that of its node has ended the command.
        TransportError: the cluster cannot be reached, or the connection was lost.
    """
    from clusterkit.interactive.inside import inside, why_it_broke_off
    from clusterkit.runs.secret_values import values_at_hand

    values_at_hand(settings).refuse_shown(command=command)
    with inside(settings, run) as place:
        on_entry(place)
        status = run_in(place, command, terminal=terminal)
        if (error := why_it_broke_off(place, status)) is not None:
            raise error
        return status


def run_in(place: Inside, command: Sequence[str], *, terminal: str | None) -> int:
    """Runs a command beside the program of a run that is known to run; arguments as of `shell`."""
    program = list(command) or ["sh", "-c", SHELL, "sh", place.run.run_id]
    argv = place.argv(enter_argv(place, program, terminal=terminal), terminal=terminal is not None)
    return place.transport.attach(argv, terminal=terminal is not None, hold_input=place.hold_input)


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
