"""The list that a drill ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from clusterkit.ui.console import out

if TYPE_CHECKING:
    from clusterkit.verbs.drill import Drilled


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
