"""shell: run a shell or another command in the environment of a running run's program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from clusterkit.interactive.entering import SHELL, enter_argv
from clusterkit.interactive.inside import Inside, inside, why_it_broke_off
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.secret_values import values_at_hand
from clusterkit.submit.shown import refuse_shown

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings


def shell(
    settings: Settings,
    run: LedgerRun,
    command: Sequence[str],
    *,
    terminal: str | None,
    on_entry: Callable[[Inside], None],
) -> int:
    """Run a command beside the program: same node, container, environment, working directory.

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
    refuse_shown(values_at_hand(settings), command=command)
    with inside(settings, run) as place:
        on_entry(place)
        status = run_in(place, command, terminal=terminal)
        if (error := why_it_broke_off(place, status)) is not None:
            raise error
        return status


def run_in(place: Inside, command: Sequence[str], *, terminal: str | None) -> int:
    """Run a command beside the program of a run that is known to run; arguments as of `shell`."""
    program = list(command) or ["sh", "-c", SHELL, "sh", place.run.run_id]
    argv = place.argv(enter_argv(place, program, terminal=terminal), terminal=terminal is not None)
    return place.transport.attach(argv, terminal=terminal is not None, hold_input=place.hold_input)
