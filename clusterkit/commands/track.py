"""Brings the trackers of the project up to date with the runs that are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from clusterkit.config.models import ProjectTable
from clusterkit.errors import RunError, TrackerError, TrackerUnusableError
from clusterkit.results.pull import alone
from clusterkit.results.tracked import described, tracked_rows
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.trackers import tracker_named
from clusterkit.trackers.base import TrackedRows, TrackedRun, Tracker


@dataclass(frozen=True)
class Tracked:
    """What was done for one tracker."""

    tracker: str
    where: str
    runs: tuple[str, ...] = ()
    """Ids of the runs that were brought up to date."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Why others were not, by run id; the next sync tries again."""
    error: TrackerError | None = None
    """What to show of it all; None if nothing failed."""


def track(
    runs: Sequence[LedgerRun],
    project: ProjectTable,
    places: Mapping[str, str],
    *,
    waiting: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Tracked, ...]:
    """Copies what is new of some runs' metrics to each tracker. What fails for one does not stop the others.

    Args:
        runs: of the project; those without run.json or logs here are passed over.
        project: its settings.
        places: where to, by the trackers' names.
        waiting: called if another process writes to the results folder.
        tell: called with a line about what takes long.
    """
    results = project.results
    here = [run for run in runs if (results / run.run_id / "run.json").is_file()]
    if not here or not places:
        return ()
    with alone(results, waiting):  # nothing else writes to the trackers or the files then
        metrics = list(_with_logs(here, results, project.step))
        return tuple(
            _copy(tracker_named(name), place, project.name, metrics, tell) for name, place in places.items()
        )


def joined(before: Sequence[Tracked], now: Sequence[Tracked]) -> tuple[Tracked, ...]:
    """Returns what was done for each tracker at two looks; the error is the second's if that did anything."""
    runs = {tracked.tracker: tracked.runs for tracked in before}
    new = [
        replace(tracked, runs=tuple(dict.fromkeys((*runs.get(tracked.tracker, ()), *tracked.runs))))
        for tracked in now
    ]
    return tuple(new or before)


def _with_logs(
    runs: Sequence[LedgerRun], results: Path, step: str | None
) -> Iterator[tuple[TrackedRun, TrackedRows]]:
    for run in runs:
        folder = results / run.run_id
        with suppress(RunError):  # the pull has already reported the missing run.json
            rows = tracked_rows(folder, own=not run.recipe, step=step)
            if rows.size:
                yield described(read_run_dir(folder), run.state), rows


def _copy(
    kind: type[Tracker],
    place: str,
    project: str,
    metrics: Sequence[tuple[TrackedRun, TrackedRows]],
    tell: Callable[[str], None],
) -> Tracked:
    """Brings each run up to date; what fails for one run is kept, and what fails for all ends it."""
    runs: list[str] = []
    failed: dict[str, str] = {}
    error: TrackerError | None = None
    try:
        with closing(kind(place, project, tell)) as tracker:
            for run, rows in metrics:
                try:
                    if tracker.log(run, rows):
                        runs.append(run.run_id)
                except TrackerUnusableError:
                    raise
                except TrackerError as fault:
                    failed[run.run_id] = fault.cause
                except OSError as fault:
                    failed[run.run_id] = f"{fault.filename or place}: {fault.strerror or fault}"
    except TrackerUnusableError as fault:
        error = fault
    if failed and error is None:
        first, why = next(iter(failed.items()))
        error = TrackerError(
            f"{kind.title}: {len(failed)} of {len(metrics)} runs could not be brought up to date: "
            f"{first}: {why}",
            hint="correct this, then `clusterkit sync-results` adds what is missing",
        )
    return Tracked(kind.title, place, tuple(runs), failed, error)
