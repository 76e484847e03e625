"""The table of runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from clusterkit.backends.jobs import JobState
from clusterkit.cli.ui.console import format_count, note, out, print_document, printable, warn_of_silence
from clusterkit.cli.ui.lines import share_bar
from clusterkit.runs.names import group_label, label
from clusterkit.units import format_seconds, percent, plural, significant

if TYPE_CHECKING:
    from clusterkit.runs.state import RunState
    from clusterkit.runs.status import StatusReport, StatusRow
    from clusterkit.search.summary import Best


SCHEMA = 3


def print_json(
    report: StatusReport, *, indent: int | None = 2, bests: Mapping[str, Best] = MappingProxyType({})
) -> None:
    """Prints one JSON document on standard output; `bests` has the best trials of searches by group."""
    print_document(document(report, bests), indent=indent)


def document(report: StatusReport, bests: Mapping[str, Best] = MappingProxyType({})) -> dict[str, Any]:
    """Builds the whole document."""
    folded = [line for line in fold_groups(report.rows, least=1) if isinstance(line, Folded)]
    return {
        "schema": SCHEMA,
        "time": time.time(),
        "runs": [row.as_object() for row in report.rows],
        "groups": [_group(line, bests.get(line.group)) for line in folded],
        "silent": dict(report.silent),
        "mute": dict(report.mute),
        "found": dict(report.found),
        "left_out": report.left_out,
    }


def _group(line: Folded, best: Best | None) -> Mapping[str, Any]:
    return {
        "group": line.group,
        "clusters": list(dict.fromkeys(row.run.cluster for row in line.rows)),
        "runs": [row.run.run_id for row in line.rows],
        "states": {state.value: count for state, count in line.counts.items()},
        "progress": line.progress,
        "best": _best(best) if best else None,
    }


def _best(best: Best) -> Mapping[str, Any]:
    found = asdict(best)
    del found["group"]
    return found


_COLOURS = {
    JobState.RUNNING: "cyan",
    JobState.COMPLETED: "green",
    JobState.PENDING: "yellow",
    JobState.SUBMITTING: "yellow",
    JobState.DEFERRED: "yellow",
    JobState.CANCELLED: "dim",
    JobState.PREEMPTED: "yellow",
}
_COLUMNS = {
    "run": False,
    "id": False,
    "seed": True,
    "cluster": False,
    "state": False,
    "progress": False,
    "steps/s": True,
    "left": True,
    "starts in": True,
    "success": True,
    "gpu": True,
}
"""Column -> whether it is right-aligned."""
_IF_ANY = ("id", "gpu", "starts in", "success", "seed")
"""Columns shown only if some run has a value; for example, not every environment reports success."""
_DROPPED = ("id", "gpu", "cluster", "starts in", "steps/s", "seed", "success")
"""Columns that a narrow terminal drops, in this order."""
_SPARED = ("left", "progress")
"""Columns dropped in addition where a run's id would have no room at all."""
_NARROWEST = 8
"""Columns in which a run's id is still readable, on several lines."""
_GAP = 2
_BAR = 10
_REASON = 45
"""Width a reason needs beside its run; with less, reasons go below the table, on lines of their own."""
_MANY = 5
"""Minimum number of members to fold a group into one line."""
_SUMMED = 12
"""A table with more lines gets a summary."""
_SPANS = 3
"""Spans of consecutive seeds to name."""
_NAMED = 2
"""Up to this many runs are all named before a shared reason; of more, only the first is."""


@dataclass(frozen=True)
class Folded:
    """A group shown on one line."""

    group: str
    rows: tuple[StatusRow, ...]

    @property
    def counts(self) -> dict[JobState, int]:
        """The number of runs per state, active states first."""
        counts = Counter(row.state.state for row in self.rows)
        return dict(sorted(counts.items(), key=lambda item: (not item[0].active, -item[1], item[0])))

    @property
    def progress(self) -> float | None:
        """The mean fraction of the steps done; None if no member reports it."""
        known = [row.state.progress for row in self.rows]
        return None if known.count(None) == len(known) else sum(share or 0.0 for share in known) / len(known)


def fold_groups(rows: Sequence[StatusRow], *, least: int = _MANY) -> list[StatusRow | Folded]:
    """Folds each group of at least `least` members into one row, at its first member's position."""
    members: dict[str, list[StatusRow]] = {}
    for row in rows:
        members.setdefault(row.run.group, []).append(row)
    folded = {group for group, mine in members.items() if group and len(mine) >= least}
    lines: dict[str, StatusRow | Folded] = {}
    for row in rows:
        group = row.run.group
        if group not in folded:
            lines[row.run.run_id] = row
        elif group not in lines:
            lines[group] = Folded(group, tuple(members[group]))
    return list(lines.values())


_TROUBLED = frozenset({JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.NODE_FAIL, JobState.NOT_SUBMITTED})


def show_status(report: StatusReport, *, expand: bool = False) -> None:
    """Prints one line per run or group, with reasons beside the lines, or below on a narrow terminal."""
    warn_of_silence(report.silent)
    warn_of_silence({f"the scheduler of {cluster}": cause for cluster, cause in report.mute.items()})
    for cluster, count in report.found.items():
        note(f"found {plural(count, 'run')} on {cluster} that this ledger did not know")
    if not report.rows:
        if report.nothing_learnt:
            return
        note(
            "no such runs; `clusterkit status --all` lists every one"
            if report.known
            else "no runs yet; `clusterkit submit` starts one"
        )
        return
    lines = list(report.rows) if expand else fold_groups(report.rows)
    table, beside = status_table(lines, width=out.width)
    out.print(table)
    if not beside:
        for text in remarks(lines):
            out.print(text)
    if len(lines) > _SUMMED:
        note(summary(report.rows))
    troubled = [label(row.run) for row in report.rows if row.state.state in _TROUBLED or row.state.stale]
    if troubled:
        note(f"clusterkit why {troubled[-1]} shows the cause and what to do")
    if report.left_out > 0:
        note(f"{plural(report.left_out, 'older run')} not shown; --all shows all of them")


def status_table(lines: Sequence[StatusRow | Folded], *, width: int) -> tuple[Table, bool]:
    """Builds the table, also for live views, no wider than `width` if possible.

    Returns:
        The table, and whether it contains the reasons; if not, `remarks` returns them.
    """
    reasons = [_remark(line) for line in lines]
    longest = max((len(reason) for reason in reasons), default=0)
    shown, cells = _layout(lines, width - _GAP - min(longest, _REASON) if longest else width, bar=True)
    room = width - _width(shown, cells) - _GAP
    dropped = [name for name in _DROPPED[3:] if name not in shown and any(row.get(name) for row in cells)]
    beside = room >= min(longest, _REASON) and not dropped
    if not beside:
        shown, cells = _layout(lines, width, bar=False)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for name in shown:
        right, last_resort = _COLUMNS[name], name == "run"
        table.add_column(name, justify="right" if right else "left", no_wrap=not last_resort, overflow="fold")
        if last_resort:
            table.columns[-1].min_width = _NARROWEST
    if beside and longest:
        table.add_column("why", overflow="fold", max_width=room)
    for row, reason in zip(cells, reasons, strict=True):
        table.add_row(*(row.get(name, "") for name in shown), *((reason,) if beside and longest else ()))
    return table, beside


def _layout(
    lines: Sequence[StatusRow | Folded], width: int, *, bar: bool
) -> tuple[list[str], list[dict[str, str | Text]]]:
    """Returns the columns that have content and fit, and each line's cells, without bars if necessary."""
    cells = [
        _folded_cells(line, bar=bar) if isinstance(line, Folded) else _cells(line, bar=bar) for line in lines
    ]
    if not _seeds_differ(lines):
        for row in cells:
            del row["seed"]
    shown = [name for name in _COLUMNS if name not in _IF_ANY or any(row.get(name) for row in cells)]
    if bar and _width(shown, cells) > width:
        shown = [name for name in shown if name != "id"]
    if bar:
        return (shown, cells) if _width(shown, cells) <= width else _layout(lines, width, bar=False)
    for name in _DROPPED:
        several = len({str(row.get(name)) for row in cells}) > 1
        if _width(shown, cells) > width and name in shown and (name != "cluster" or not several):
            shown.remove(name)
    for name in _SPARED:
        others = [one for one in shown if one != "run"]
        if _width(others, cells) + _GAP + _NARROWEST > width and name in shown:
            shown.remove(name)
    return shown, cells


def _seeds_differ(lines: Sequence[StatusRow | Folded]) -> bool:
    """Returns whether runs that belong together, by their group or else their name, differ in their seeds."""
    seeds: dict[tuple[str, str], set[int]] = {}
    for line in lines:
        for row in line.rows if isinstance(line, Folded) else (line,):
            run = row.run
            seeds.setdefault((run.group, "" if run.group else run.name), set()).add(run.seed)
    return any(len(found) > 1 for found in seeds.values())


def format_seeds(seeds: Iterable[int]) -> str:
    """Formats seeds compactly, in ascending order.

    >>> format_seeds([5, 3, 1, 2])
    '1..3, 5'
    """
    spans: list[list[int]] = []
    for seed in sorted(set(seeds)):
        if spans and seed == spans[-1][1] + 1:
            spans[-1][1] = seed
        else:
            spans.append([seed, seed])
    told = [
        f"{low}..{high}" if high > low + 1 else f"{low}, {high}" if high > low else str(low)
        for low, high in spans
    ]
    return ", ".join(told[:_SPANS]) + (", ..." if len(told) > _SPANS else "")


def _width(shown: Sequence[str], cells: Sequence[Mapping[str, str | Text]]) -> int:
    """Returns the table's width in characters."""
    widths = [max([len(name), *(len(row.get(name, "")) for row in cells)]) for name in shown]
    return sum(widths) + _GAP * (len(shown) - 1)


def remarks(lines: Iterable[StatusRow | Folded]) -> list[Text]:
    """Returns one line per reason: why runs wait or failed, and what will happen to them."""
    shared: dict[str, tuple[Text, list[str]]] = {}
    for line in lines:
        remark = _remark(line)
        name = group_label(line.rows[0].run) if isinstance(line, Folded) else label(line.run)
        shared.setdefault(remark.plain, (remark, []))[1].append(name)
    texts = []
    for remark, names in shared.values():
        who = ", ".join(names) if len(names) <= _NAMED else f"{names[0]} and {len(names) - 1} more"
        texts.append(Text.assemble((f"{who}: ", "bold"), remark))
    return [text for text, plain in zip(texts, shared, strict=True) if plain]


def summary(rows: Sequence[StatusRow]) -> str:
    """Counts the runs per state."""
    return f"{plural(len(rows), 'run')}: {_counted(Folded('', tuple(rows)))}"


def _cells(row: StatusRow, *, bar: bool) -> dict[str, str | Text]:
    state = row.state
    return {
        "run": label(row.run),
        "id": row.run.run_id if row.run.short else "",
        "seed": str(row.run.seed),
        "cluster": row.run.cluster,
        "state": Text(state.state.value, style=_COLOURS.get(state.state, "red")),
        "progress": _progress(state.progress, row.run.total_steps, bar=bar),
        "steps/s": significant(state.steps_per_second) if state.steps_per_second else "",
        "left": format_seconds(state.eta_seconds) if state.eta_seconds is not None else "",
        "starts in": _starts(state) or "",
        "success": percent(state.success) if state.success is not None else "",
        "gpu": f"{state.gpu:.0%}" if state.gpu is not None else "",
    }


def _folded_cells(line: Folded, *, bar: bool) -> dict[str, str | Text]:
    states = [row.state for row in line.rows]
    left = _left(line)
    rates = [state.steps_per_second or 0.0 for state in states if state.state is JobState.RUNNING]
    success = [state.success for state in states if state.success is not None]
    first = next(iter(line.counts))
    steps = sum(row.run.total_steps for row in line.rows)
    return {
        "run": group_label(line.rows[0].run),
        "id": line.group if line.rows[0].run.short else "",
        "seed": format_seeds(row.run.seed for row in line.rows),
        "cluster": ", ".join(dict.fromkeys(row.run.cluster for row in line.rows)),
        "state": Text(plural(len(states), "run"), style=_COLOURS.get(first, "red")),
        "progress": _progress(line.progress, steps, bar=bar),
        "steps/s": significant(sum(rates)) if sum(rates) else "",
        "left": format_seconds(left) if left is not None else "",
        "success": percent(sum(success) / len(success)) if success else "",
    }


def _left(line: Folded) -> float | None:
    """Estimates the seconds until a group's last run ends, if pending runs replace running ones.

    Returns None if nothing is running, or if another active run's total number of steps is unknown.
    """
    running = [row.state for row in line.rows if row.state.eta_seconds is not None]
    others = [row for row in line.rows if row.state.state.active and row.state.eta_seconds is None]
    rate = sum(state.steps_per_second or 0.0 for state in running)
    if not running or not all(row.run.total_steps for row in others):
        return None
    last = max(state.eta_seconds or 0.0 for state in running)
    if not others:
        return last
    steps = sum((row.run.total_steps or 0) * (1 - (row.state.progress or 0.0)) for row in others)
    steps += sum((state.eta_seconds or 0.0) * (state.steps_per_second or 0.0) for state in running)
    return max(last, steps / rate) if rate else None


def _remark(line: StatusRow | Folded) -> Text:
    if isinstance(line, Folded):
        return Text(_counted(line), style="dim")
    why = Text(printable(line.state.why or ""), style="dim")
    parts = [part for part in (why, Text(line.state.outlook or "", style="yellow")) if part]
    return Text("; ", style="dim").join(parts)


def _counted(line: Folded) -> str:
    return ", ".join(f"{count} {state.lower().replace('_', ' ')}" for state, count in line.counts.items())


def _starts(state: RunState) -> str | None:
    if state.expected_start is None or state.updated is None:
        return None
    return format_seconds(max(0.0, state.expected_start - state.updated))


def _progress(progress: float | None, total: int, *, bar: bool) -> Text:
    if progress is None:
        return Text(f"of {format_count(total)}" if total else "", style="dim")
    share = progress if progress == 1 else min(progress, 0.99)
    text = Text(f"{int(share * 100):>3}%" + (f" of {format_count(total)}" if total else ""))
    if not bar:
        return text
    return share_bar(progress, _BAR) + Text(" ") + text
