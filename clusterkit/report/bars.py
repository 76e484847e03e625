"""Horizontal bars of the page: when attempts ran, and where the time went. Pure; lengths in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from clusterkit.report.binding import NAMES
from clusterkit.report.groups import Group, Run
from clusterkit.report.measured import PARTS, Measured
from clusterkit.report.panels import format_time, time_ticks
from clusterkit.report.words import share
from clusterkit.runs.record import Attempt
from clusterkit.runs.run_dir import moment
from clusterkit.units import format_seconds

_PART_COLOURS = dict(zip(PARTS, ("c0", "c5", "c1", "c2", "c4", "rest"), strict=True))
_ENDS = {"completed": "c2", "requeue": "c0", "timeout": "c4"}
_LEGEND = (
    ("rest", "waiting"),
    ("c2", "completed"),
    ("c0", "requeued"),
    ("c4", "time limit"),
    ("bad", "failed"),
)


@dataclass(frozen=True)
class Piece:
    """A stretch of a bar."""

    left: float
    width: float
    colour: str
    """A class of the page."""
    text: str
    """What a pointer shows."""
    label: str = ""
    """What stands in it, where there is room."""


@dataclass(frozen=True)
class Bar:
    """One run."""

    label: str
    pieces: tuple[Piece, ...]
    note: str = ""
    """The same in words, for readers who cannot point."""


@dataclass(frozen=True)
class Bars:
    """A chart of bars."""

    title: str
    bars: tuple[Bar, ...]
    ticks: tuple[tuple[float, str], ...]
    legend: tuple[tuple[str, str], ...]
    """(colour, name)."""


def timeline(groups: Sequence[Group]) -> Bars | None:
    """Attempts on the axis of time since each run was submitted; None where no attempt is recorded."""
    rows = [(group, run, _stretches(run)) for group in groups for run in group.runs]
    end = max((stop for _, _, stretches in rows for _, stop, _, _ in stretches), default=0.0)
    if end <= 0:
        return None
    bars = [
        Bar(
            _label(groups, group, run),
            tuple(
                Piece(100 * start / end, 100 * (stop - start) / end, colour, text)
                for start, stop, colour, text in stretches
            ),
            _note(run),
        )
        for group, run, stretches in rows
    ]
    used = {piece.colour for bar in bars for piece in bar.pieces}
    return Bars(
        "Attempts, by time since submission",
        tuple(bars),
        tuple((100 * tick / end, format_time(tick)) for tick in time_ticks(end)),
        tuple((colour, name) for colour, name in _LEGEND if colour in used),
    )


def time_split(groups: Sequence[Group], measured: Sequence[Sequence[Measured]]) -> Bars | None:
    """The parts of the loop's wall time, a bar a run; None where no program timed its loop."""
    bars = []
    for group, those in zip(groups, measured, strict=True):
        for run, one in zip(group.runs, those, strict=True):
            if one.shares:
                bars.append(Bar(_label(groups, group, run), _pieces(one)))
    if not bars:
        return None
    names = {
        **NAMES,
        "learn": "updates",
        "env": "waiting for physics",
        "checkpoint": "checkpoints",
        "other": "starting and the rest",
    }
    used = {piece.colour for bar in bars for piece in bar.pieces}
    legend = [(_PART_COLOURS[part], names[part]) for part in PARTS if _PART_COLOURS[part] in used]
    return Bars("Where the loop's time went", tuple(bars), (), tuple(legend))


def _pieces(measured: Measured) -> tuple[Piece, ...]:
    pieces, left = [], 0.0
    for part in PARTS:
        width = 100 * measured.shares[part]
        if width > 0:
            told = share(measured.shares[part])
            label = told if width >= 9 else ""
            pieces.append(Piece(left, width, _PART_COLOURS[part], f"{part}: {told}", label))
        left += width
    return tuple(pieces)


def _stretches(run: Run) -> list[tuple[float, float, str, str]]:
    """(start, stop, colour, words) in seconds since submission: waits, and attempts by how they ended."""
    attempts = [attempt for attempt in run.directory.attempts if _time(attempt, "started") is not None]
    if not attempts:
        return []
    first = _time(attempts[0], "started") or 0.0
    origin = min(_created(run) or first, first)
    last_line = max((row.time for row in run.rows), default=0.0)
    stretches, now = [], origin
    for attempt in attempts:
        start = _time(attempt, "started") or now
        stop = _time(attempt, "ended")
        stop = max(start, last_line if stop is None else stop)
        if start - now >= 1:
            stretches.append((now - origin, start - origin, "rest", f"waited {format_seconds(start - now)}"))
        why = str((attempt.exit or {}).get("why") or "no record of its end")
        colour = _ENDS.get(why, "bad" if attempt.exit else "c5")
        words = f"attempt {attempt.number}: {format_seconds(stop - start)}, {why}"
        stretches.append((start - origin, stop - origin, colour, words))
        now = stop
    return stretches


def _note(run: Run) -> str:
    count = len(run.directory.attempts)
    return f"{count} attempts" if count != 1 else ""


def _label(groups: Sequence[Group], group: Group, run: Run) -> str:
    seed = f"seed {run.document.get('seed')}"
    return seed if len(groups) == 1 else f"{group.label}, {seed}"


def _created(run: Run) -> float | None:
    try:
        return datetime.fromisoformat(str(run.document.get("created"))).timestamp()
    except ValueError:
        return None


def _time(attempt: Attempt, key: str) -> float | None:
    record = attempt.start if key == "started" else attempt.exit
    return moment(record or {}, key)
