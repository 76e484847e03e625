"""Shows advice for the next run, derived from earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.console import err, note, out

if TYPE_CHECKING:
    from clusterkit.report.advice import GroupAdvice

_HEADLINES = 4
_VERDICTS = {"fine": "green", "act": "yellow", "not measured": "dim"}


def show_headlines(advice: Sequence[GroupAdvice]) -> None:
    """Prints a few lines of advice at the end of another command's output."""
    for one in advice:
        prefix = f"{one.label}: " if len(advice) > 1 else ""
        for line in one.headlines[: max(1, _HEADLINES // len(advice))]:
            err.print(Text(f"{prefix}{line}"))
    if any(one.headlines for one in advice):
        note("more: the page, or `clusterkit report --advice`")


def show_advice(advice: Sequence[GroupAdvice]) -> None:
    """Prints all advice: requested and used resources, bottlenecks, faster options, the guides' rules."""
    for number, one in enumerate(advice):
        if number:
            out.print()
        if len(advice) > 1:
            out.print(Text(one.label, style="bold"))
        if one.needs:
            out.print(_needs(one))
            out.print()
        if one.binding:
            out.print(Text(one.binding.sentence))
        if one.changes:
            out.print(_changes(one))
        if one.binding or one.changes:
            out.print()
        out.print(_checks(one))


def _needs(advice: GroupAdvice) -> Table:
    table = _table("resource", "asked for", "used", "enough", "for the profile")
    for need in advice.needs:
        style = "yellow" if need.too_little else ""
        table.add_row(
            need.resource,
            need.asked,
            Text(need.used, style=style),
            need.enough,
            Text(need.setting, style="bold"),
        )
    return table


def _changes(advice: GroupAdvice) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    for change in advice.changes:
        words = Text.assemble((change.setting, "bold"), f": {change.gain}; {change.why}")
        table.add_row(Text("faster", style="green"), words)
    return table


def _checks(advice: GroupAdvice) -> Table:
    table = _table("rule", "", "measured")
    for check in advice.checks:
        told = Text(check.measured)
        if check.cure:
            told.append(f"; {check.cure}", style="bold")
        table.add_row(check.rule, Text(check.verdict, style=_VERDICTS[check.verdict]), told)
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name)
    return table
