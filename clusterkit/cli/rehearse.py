"""`clusterkit rehearse`."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.common import ClusterOption, ConfigOption, JsonOption, load_project, open_ledger, parsed
from clusterkit.cli.ui.console import out, print_document, say
from clusterkit.cli.ui.progress import stage_lines, transfer_bar
from clusterkit.units import parse_duration

if TYPE_CHECKING:
    from clusterkit.commands.rehearse import Rehearsed
    from clusterkit.runs.status import StatusRow


def rehearse(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", metavar="PROFILE", help="Profile whose resources and signal to rehearse."
        ),
    ] = None,
    cluster: ClusterOption = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="Time limit of each attempt; longer for programs that start slowly.",
        ),
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Rehearse how a run continues past its time limit.

    A real job of two minutes, or of --time, receives the signal, saves a checkpoint and continues, and every
    step is checked. Exits with 1 if a step failed.
    """
    from clusterkit.cli.ui.submit import note_jobs, show_submitted
    from clusterkit.commands.rehearse import rehearse as command

    settings = load_project(config)
    with open_ledger(settings) as ledger:
        done = command(
            settings,
            ledger,
            settings.cluster(cluster),
            settings.profile(profile),
            None if time is None else parsed("--time", parse_duration, time),
            bar=transfer_bar,
            on_submit=note_jobs if as_json else show_submitted,
            on_row=stage_lines(_line, _line, seconds=math.inf),
        )
    (print_json if as_json else show_rehearsed)(done)
    if not done.passed:
        raise typer.Exit(1)


def print_json(done: Rehearsed) -> None:
    """Prints the verdict and its steps as JSON."""
    steps = [
        {"outcome": check.outcome.value, "evidence": check.evidence, "cure": check.cure or None}
        for check in done.checks
    ]
    print_document({"schema": 1, "run_id": done.run.run_id, "passed": done.passed, "steps": steps})


def _line(row: StatusRow) -> str:
    state = row.state
    if state.state is JobState.RUNNING and state.attempt is None:
        return "it starts"
    if state.state is JobState.RUNNING:
        return f"attempt {state.attempt} runs on {state.node}" + (
            ", until its time limit" if state.attempt == 0 else ""
        )
    return state.state.capitalize() + (f": {state.why}" if state.why else "")


def show_rehearsed(done: Rehearsed) -> None:
    """Prints a green or red line for each step, and the verdict."""
    from clusterkit.backends.checks import Outcome

    for check in done.checks:
        mark, style = ("ok  ", "green") if check.outcome is Outcome.PASS else ("FAIL", "red")
        out.print(Text.assemble((f"{mark}  ", style), check.evidence), soft_wrap=True)
        if check.cure:
            say(f"      {check.cure}")
    if done.passed:
        out.print("A run with --until-done gets past its time limit here.", style="green", soft_wrap=True)
    else:
        out.print("A long run would not get past its time limit here.", style="red", soft_wrap=True)
