"""`clusterkit curves`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, out, transfer_bar
from clusterkit.cli.ui.curves import show_live, show_once, view, view_group
from clusterkit.commands.curves import Curves, curves_of
from clusterkit.errors import RunError
from clusterkit.project import load, open_ledger
from clusterkit.results.metrics import meant, no_such_metric, own_names


def curves(
    name: options.RunOrGroup = "last",
    metric: options.Metric = None,
    once: Annotated[bool, typer.Option("--once", help="Print the curves and exit.")] = False,
    config: options.Config = None,
) -> None:
    """Draw learning curves in the terminal, live.

    Shows the success, return and speed of a run or group, or the metrics of your own program, read from its
    logs on the cluster or from the synced copy. Needs no account. Ctrl-C exits.

    Examples:
      clusterkit curves last
      clusterkit curves last --once  # print the curves and exit

    See also: clusterkit report, clusterkit logs, clusterkit status
    """
    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
    live = out.is_terminal and not once
    show = show_live if live else show_once
    looks = _checked(curves_of(settings, runs, follow=live, bar=transfer_bar, say=note), metric)
    if len(runs) > 1:
        show(looks, partial(view_group, metric=metric))
    else:
        show((one for (one,) in looks), partial(view, metric=metric))


def _checked(looks: Iterator[tuple[Curves, ...]], metric: str | None) -> Iterator[tuple[Curves, ...]]:
    """Yields the looks as long as there is, or may yet come, something to draw.

    Raises:
        RunError: all runs have ended and logged no number, or not the metric.
    """
    for look in looks:
        if all(one.over for one in look):
            names = {name for one in look for name in own_names(one.rows)}
            group = look[0].run.group if len(look) > 1 else look[0].run.run_id
            if not names:
                raise RunError(
                    f"{group} has ended and logged no numbers",
                    hint=f"`clusterkit logs {group}` shows the output",
                )
            if metric is not None and meant(metric, names) not in names:
                raise no_such_metric(metric, names)
        yield look
