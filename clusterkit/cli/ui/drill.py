"""The list that a drill ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from clusterkit.backends.base import JobState
from clusterkit.cli.ui.console import note, out

if TYPE_CHECKING:
    from clusterkit.commands.drill import Drilled
    from clusterkit.runs.status import StatusRow


class Told:
    """Says a line whenever something changes."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, row: StatusRow) -> None:
        """Take note of where the run stands."""
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
    """A green or red line for each step, and one verdict."""
    for check in done.checks:
        mark, style = ("ok  ", "green") if check.passed else ("FAIL", "red")
        out.print(Text.assemble((f"{mark}  ", style), check.text), soft_wrap=True)
        if check.hint and not check.passed:
            out.print(f"      {check.hint}", markup=False, soft_wrap=True)
    if done.passed:
        out.print("[green]A run with --until-done gets past its time limit here.[/]", soft_wrap=True)
    else:
        out.print("[red]A long run would not get past its time limit here.[/]", soft_wrap=True)
