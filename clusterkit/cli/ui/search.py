"""The trials of a search, as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from clusterkit.cli.ui.console import note, out, print_document, printable
from clusterkit.cli.ui.lines import plain_table
from clusterkit.search.space import short
from clusterkit.search.study import best_of, ranked
from clusterkit.units import plural

if TYPE_CHECKING:
    from clusterkit.search.definition import Definition
    from clusterkit.search.study import SearchTrial


def show_trials(definition: Definition, trials: Sequence[SearchTrial], *, as_json: bool) -> None:
    """Prints all trials, the best first."""
    found = ranked(trials, definition.direction)
    best = best_of(trials, definition.direction)
    if as_json:
        print_document(
            {
                "schema": 1,
                "search": definition.name,
                "group": definition.group,
                "metric": definition.metric,
                "direction": definition.direction,
                "best": best and best.number,
                "trials": [_object(one) for one in found],
            }
        )
        return
    why = ("why",) if any(one.why for one in found) else ()
    table = plain_table(
        "trial", definition.metric, "step", "state", *definition.space, *why, right=("trial", "step")
    )
    for one in found:
        value = "" if one.value is None else f"{one.value:.4g}"
        values = (short(one.values.get(name, "")) for name in definition.space)
        style = "bold" if one is best else "dim" if one.state in ("pruned", "failed") else ""
        step = "" if one.step is None else f"{one.step:,}"
        reason = (printable(one.why or ""),) if why else ()
        table.add_row(*map(Text, (str(one.number), value, step, one.state, *values, *reason)), style=style)
    out.print(table)
    states = [one.state for one in trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    note(f"{plural(len(trials), 'trial')}: {counts}" if trials else "no trials yet")
    if best is not None:
        note(f"best: {best.run_id}")


def _object(one: SearchTrial) -> dict[str, Any]:
    found = asdict(one)
    del found["stopping"]
    return found
