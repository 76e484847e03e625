"""The table of runs, redrawn while they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.console import note, out
from clusterkit.cli.ui.status import (
    Folded,
    fold_groups,
    print_json,
    remarks,
    show_status,
    status_table,
    summary,
)
from clusterkit.units import format_seconds

if TYPE_CHECKING:
    from clusterkit.runs.status import StatusReport, StatusRow
    from clusterkit.runs.watching import Watched
    from clusterkit.search.summary import Best

_ORDER = (JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED)
"""States listed first; waiting runs follow, then ended ones."""


def show_watch(
    looks: Iterator[Watched],
    *,
    expand: bool,
    as_json: bool,
    foot: Callable[[], str] | None = None,
    bests: Callable[[], Mapping[str, Best]] = dict,
) -> Watched | None:
    """Redraws the table on a terminal; otherwise prints changes, or with `as_json` a document per update.

    The last update stays on the screen, even after Ctrl-C, and is returned. On a terminal, `foot` is shown
    below the table. `bests` returns the best trials of searches, by group.
    """
    watched_last = None
    if as_json:
        for watched_last in looks:
            print_json(watched_last.report, indent=None, bests=bests())
        return watched_last
    if not out.is_terminal:
        return _tell_changes(looks, expand=expand)
    try:
        with Live(console=out, transient=True, auto_refresh=False, vertical_overflow="crop") as live:
            for watched in looks:
                watched_last = watched
                live.update(_picture(watched, expand=expand, also=foot() if foot else ""), refresh=True)
    finally:
        if watched_last is not None:
            _show_last(watched_last.report, expand=expand)
    return watched_last


def _tell_changes(looks: Iterator[Watched], *, expand: bool) -> Watched | None:
    seen: dict[str, JobState] = {}
    watched = None
    for watched in looks:
        for row in watched.report.rows:
            if seen.get(row.run.run_id) is not row.state.state:
                seen[row.run.run_id] = row.state.state
                note(f"{row.run.run_id}  {row.state.state}" + (f": {row.state.why}" if row.state.why else ""))
    if watched is not None:
        _show_last(watched.report, expand=expand)
    return watched


def _show_last(report: StatusReport, *, expand: bool) -> None:
    if report.rows or report.silent or not report.known:
        show_status(report, expand=expand)
    else:
        note("no run is active; `clusterkit status` also shows those that ended lately")


def _picture(watched: Watched, *, expand: bool, also: str) -> Group:
    """Builds a view that fits the terminal's height, the most active runs first."""
    report = watched.report
    lines = list(report.rows) if expand else fold_groups(report.rows)
    lines.sort(key=_liveliness)
    notes = [Text(f"{name} does not answer: {why}", style="yellow") for name, why in report.silent.items()]
    notes += [
        Text(f"the scheduler of {name} does not answer: {why}", style="yellow")
        for name, why in report.mute.items()
    ]
    if also:
        notes.append(Text(also))
    room = max(1, out.height - 4 - len(notes))
    table, beside = status_table(lines[:room], width=out.width)
    below = [] if beside else [part for text in remarks(lines[:room]) for part in text.wrap(out, _room())]
    if len(lines) + len(below) > room:
        below = below[: max(0, room - len(lines))]
    hidden = len(lines) - room
    foot = [summary(report.rows), "Ctrl-C stops watching only"]
    if hidden > 0:
        foot.append(f"{hidden} more do not fit")
    if watched.next_question:
        foot.append(f"asked again in {format_seconds(min(watched.next_question.values()))}")
    return Group(
        table,
        *(_one_line(text) for text in below),
        *(_one_line(text) for text in notes),
        _one_line(Text("; ".join(foot), style="dim")),
    )


def _one_line(text: Text) -> Text:
    text.truncate(_room(), overflow="ellipsis")
    return text


def _room() -> int:
    """Returns the terminal's width, without space for an echoed `^C`."""
    return max(1, out.width - 3)


def _liveliness(line: StatusRow | Folded) -> int:
    state = next(iter(line.counts)) if isinstance(line, Folded) else line.state.state
    return 0 if state in _ORDER else 1 if state.active else 2
