"""`clusterkit curves`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from clusterkit.cli.common import ConfigOption, RunOrGroupArgument, load, open_ledger
from clusterkit.cli.ui.console import format_count, note, out, printable
from clusterkit.cli.ui.curves import panels, show_live, show_once, view
from clusterkit.cli.ui.lines import plain_table
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.results.metrics import last_step
from clusterkit.units import plural

if TYPE_CHECKING:
    from clusterkit.commands.curves import Curves


def curves(
    name: RunOrGroupArgument = "last",
    once: Annotated[bool, typer.Option("--once", help="Print the curves and exit.")] = False,
    config: ConfigOption = None,
) -> None:
    """Draw learning curves in the terminal, live.

    Shows the success, return and speed of a run or group, read from its metrics on the cluster or from the
    synced copy. Needs no account. Ctrl-C exits.
    """
    from clusterkit.commands.curves import curves as command
    from clusterkit.commands.curves import group_curves

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
    live = out.is_terminal and not once
    show = show_live if live else show_once
    if len(runs) > 1:
        show(group_curves(settings, runs, follow=live, bar=transfer_bar, say=note), view_group)
    else:
        show(command(settings, runs[0], follow=live, bar=transfer_bar, say=note), view)


_LEVELS = " ▁▂▃▄▅▆▇█"


_SPARK = 24
"""Maximum width of a small curve, in columns."""


_LEAST = 8
"""Minimum width; with fewer columns, no small curve is drawn."""


_VALUE, _STEP, _GAP = 7, 5, 2
"""Width in characters of a value, of the steps, and of the gap between columns."""


def view_group(looks: Sequence[Curves], width: int, height: int | None) -> RenderableType:
    """Builds one view of several runs; all small curves share one scale."""
    shown = [panels(one) for one in looks]
    names = list(dict.fromkeys(panel.name for mine in shown for panel in mine))
    span = max((row.step for one in looks for row in one.rows), default=1) or 1
    values = [y for mine in shown for panel in mine if panel.name == names[0] for _, y in panel.points]
    low, high = min(values, default=0.0), max(values, default=1.0)
    table = plain_table("run", "state", "step", right=("step",))
    for name in names:
        table.add_column(printable(name), justify="right", no_wrap=True)
    columns = _room(looks, names, width)
    if columns:
        table.add_column(Text("curve", "dim"), no_wrap=True)
    fitting = len(looks) if height is None else max(1, height - 2)
    for one, mine in list(zip(looks, shown, strict=True))[:fitting]:
        found = {panel.name: panel for panel in mine}
        step = last_step(one.rows)
        cells = [found[name].last if name in found else "" for name in names]
        first = found.get(names[0])
        small = [_spark(first.points if first else [], span, low, high, columns)] if columns else []
        table.add_row(
            one.run.run_id, str(one.state.state), "" if step is None else format_count(step), *cells, *small
        )
    hidden = len(looks) - fitting
    more = [Text(f"and {plural(hidden, 'more run')}", "dim")] if hidden > 0 else []
    return Group(table, *more)


def _room(looks: Sequence[Curves], names: Sequence[str], width: int) -> int:
    """Returns the columns available for a small curve; 0 if there are too few."""
    fixed = [
        max(len(one.run.run_id) for one in looks),
        max(len(str(one.state.state)) for one in looks),
        _STEP,
    ]
    taken = sum(fixed) + sum(max(_VALUE, len(name)) for name in names) + _GAP * (len(fixed) + len(names))
    room = min(_SPARK, width - taken)
    return room if room >= _LEAST else 0


def _spark(points: Sequence[tuple[float, float]], span: float, low: float, high: float, columns: int) -> Text:
    """Draws the last value in each interval of steps; an interval without a value is blank."""
    levels = [" "] * columns
    for x, y in points:
        place = min(columns - 1, max(0, int(x / span * columns)))
        level = (y - low) / (high - low) if high > low else 0.5
        levels[place] = _LEVELS[1 + round(level * (len(_LEVELS) - 2))]
    return Text("".join(levels), "green")
