"""What trackers get of a pulled run: its description, and the numbers that it logged, each step once."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from heapq import merge
from pathlib import Path
from typing import BinaryIO

from clusterkit.backends.jobs import JobState
from clusterkit.results import metrics
from clusterkit.results.logs.find import choose, files_below, is_start
from clusterkit.results.logs.jsonl import JsonLines
from clusterkit.results.logs.run_logs import read_run
from clusterkit.results.metrics import KINDS, LOG, METRICS, MetricRow, own_names
from clusterkit.runs.program import trains
from clusterkit.runs.run_dir import RunDirectory, moment, table
from clusterkit.trackers.base import MetricPoint, RunStatus, TrackedRows, TrackedRun
from clusterkit.untrusted import open_regular

_BY_STATE: Mapping[str, RunStatus] = {
    JobState.COMPLETED: RunStatus.FINISHED,
    JobState.CANCELLED: RunStatus.KILLED,
    JobState.FAILED: RunStatus.FAILED,
    JobState.TIMEOUT: RunStatus.FAILED,
    JobState.OUT_OF_MEMORY: RunStatus.FAILED,
    JobState.NODE_FAIL: RunStatus.FAILED,
}
_YEAR_9999 = 253_370_764_800.0


def described(run: RunDirectory, state: str) -> TrackedRun:
    """Describes a run as trackers show it.

    Args:
        run: its pulled run directory, whose record of the end counts.
        state: the newest known `JobState` of its job.
    """
    status = _BY_STATE.get(run.state(state), RunStatus.RUNNING)
    last = run.attempts[-1] if run.attempts else None
    over = last is not None and status is not RunStatus.RUNNING
    return TrackedRun(
        run.run_id,
        status,
        moment(run.attempts[0].start or {}, "started") if run.attempts else None,
        moment(last.exit or {}, "ended") if last is not None and over else None,
        {name: str(value) for name, value in _parameters(run) if value is not None},
        {name: str(value) for name, value in _tags(run) if value},
    )


def _parameters(run: RunDirectory) -> Iterator[tuple[str, object]]:
    recipe = table(run.document, "recipe")
    yield "recipe", recipe.get("name")
    yield "algorithm", recipe.get("algorithm")
    yield from table(recipe, "values").items()
    yield from table(run.document, "sweep").items()
    yield "seed", run.document.get("seed")
    yield "total_steps", run.document.get("total_steps")
    argv = run.document.get("argv")
    if isinstance(argv, list) and not trains(words := [str(word) for word in argv]):
        yield "command", shlex.join(words)


def _tags(run: RunDirectory) -> Iterator[tuple[str, object]]:
    yield "name", run.document.get("name")
    yield "cluster", run.document.get("cluster")
    yield "group", table(run.document, "group").get("id")
    snapshot = table(run.document, "snapshot")
    yield "git_commit", snapshot.get("git_commit")
    yield "git_branch", snapshot.get("git_branch")


def tracked_rows(run_dir: Path, *, own: bool, step: str | None = None) -> TrackedRows:
    """Returns the numbers that a pulled run has logged; see `read_run` for the arguments.

    Raises:
        OSError: a file cannot be read.
    """
    paths, _ = choose(files_below(run_dir) if own else [METRICS])
    logs = [path for path in paths if not is_start(path) and (run_dir / path).exists()]
    mixed = any(path != METRICS for path in logs)
    size = sum((run_dir / path).stat().st_size for path in logs)

    def points(since: int | None = None) -> Iterator[MetricPoint]:
        others = _points_of_others(read_run(run_dir, own=own, step=step).others) if mixed else iter(())
        with ExitStack() as stack:
            files = [stack.enter_context(open_regular(run_dir / path)) for path in logs if path == METRICS]
            mine = (_points(file, since, JsonLines(METRICS, step)) for file in files)
            yield from merge(*mine, others, key=lambda point: point.step)

    return TrackedRows(size, points, grows=not mixed)


def _points_of_others(rows: Sequence[MetricRow]) -> Iterator[MetricPoint]:
    """Yields each name and step once, by step."""
    points = [
        MetricPoint(name, row.step, _bounded(row.time), value)
        for name in own_names(rows)
        for row in metrics.latest((row for row in rows if name in row.values), metrics.LOG)
        if (value := row.logged(name)) is not None
    ]
    yield from sorted(points, key=lambda point: point.step)


def _points(file: BinaryIO, since: int | None, reader: JsonLines) -> Iterator[MetricPoint]:
    """Yields each name and step once, by step.

    Of a step, the highest attempt counts, and its last line that has the number. Lines are read twice
    because their numbers may not fit in memory.

    Args:
        file: a metrics.jsonl, open at its start.
        since: for a tracker that can only add: what the first so many bytes have, by name and step, is left
            out. None for one that is written anew: a name's numbers of earlier attempts end, as in `series`,
            where those of a later one begin.
        reader: of its lines.
    """
    places: dict[tuple[int, str], list[tuple[int, int, int]]] = {}
    first: dict[tuple[str, str], dict[int, int]] = {}
    end = 0
    for line in metrics.lines_of(file):
        start, end = end, end + len(line)
        for row in reader.parse(line):
            if row.kind in KINDS:
                # Without its line end: the last line may get it later.
                place = (row.attempt, start, start + len(line.rstrip(b"\n")))
                places.setdefault((row.step, row.kind), []).append(place)
                for name in _numbers(row) if since is None else ():
                    steps = first.setdefault((row.kind, name), {})
                    steps[row.attempt] = min(row.step, steps.get(row.attempt, row.step))
    ends = {name: metrics.overtaken(steps) for name, steps in first.items()}
    for (step, kind), lines in sorted(places.items()):
        if since is not None and max(until for _, _, until in lines) <= since:
            continue
        numbered: dict[str, MetricPoint] = {}
        old: set[str] = set()
        for attempt, start, until in sorted(lines):
            file.seek(start)
            for row in reader.parse(file.readline(metrics.LONGEST_LINE)):
                numbers = _numbers(row)
                if since is not None and until <= since:
                    old |= numbers.keys()
                for name, value in numbers.items():
                    if since is not None or step < ends[kind, name][attempt]:
                        full = name if kind == LOG else f"{kind}/{name}"
                        numbered[name] = MetricPoint(full, step, _bounded(row.time), value)
        yield from (point for name, point in numbered.items() if name not in old)


def _bounded(time: float) -> float:
    return min(max(time, 0.0), _YEAR_9999)


def _numbers(row: MetricRow) -> dict[str, float]:
    return {name: value for name in row.values if (value := row.logged(name)) is not None}
