"""`clusterkit drill`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.common import ClusterOption, ConfigOption, load, open_ledger, parsed
from clusterkit.cli.ui.console import note, out

if TYPE_CHECKING:
    from clusterkit.commands.drill import Drilled
    from clusterkit.runs.status import StatusRow


def drill(
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Whose resources and signal to rehearse."),
    ] = None,
    cluster: ClusterOption = None,
    time: Annotated[
        str | None,
        typer.Option("--time", metavar="TIME", help="Of an attempt: more where a program is slow to start."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Rehearse how a run goes on past its time limit.

    A real job of two minutes, or of --time, is signalled, checkpoints, goes on and is checked. Ends with 1 if
    a step failed.
    """
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.cli.ui.submit import show_submitted
    from clusterkit.commands.drill import drill as verb
    from clusterkit.units import parse_duration

    settings = load(config)
    with open_ledger(settings) as ledger:
        done = verb(
            settings,
            ledger,
            settings.cluster(cluster),
            settings.profile(profile),
            None if time is None else parsed("--time", parse_duration, time),
            bar=transfer_bar,
            on_submit=show_submitted,
            on_row=StateLines(),
        )
    show_drilled(done)
    if not done.passed:
        raise typer.Exit(1)


class StateLines:
    """Prints a line whenever the run's state changes."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, row: StatusRow) -> None:
        """Takes the run's current status."""
        state = row.state
        line = state.state.capitalize()
        if state.state is JobState.RUNNING and state.attempt is None:
            line = "it starts"
        elif state.state is JobState.RUNNING:
            line = f"attempt {state.attempt} runs on {state.node}"
            line += ", until its time limit" if state.attempt == 0 else ""
        elif state.why:
            line += f": {state.why}"
        if line != self._last:
            note(line)
        self._last = line


def show_drilled(done: Drilled) -> None:
    """Prints a green or red line for each step, and the verdict."""
    for check in done.checks:
        mark, style = ("ok  ", "green") if check.passed else ("FAIL", "red")
        out.print(Text.assemble((f"{mark}  ", style), check.text), soft_wrap=True)
        if check.hint and not check.passed:
            out.print(f"      {check.hint}", markup=False, soft_wrap=True)
    if done.passed:
        out.print("[green]A run with --until-done gets past its time limit here.[/]", soft_wrap=True)
    else:
        out.print("[red]A long run would not get past its time limit here.[/]", soft_wrap=True)
