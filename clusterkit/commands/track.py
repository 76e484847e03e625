"""Brings the trackers of the project up to date with the runs that are here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import RunError, TrackerError, TrackerUnusableError
from clusterkit.results.pull import alone
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.trackers.described import described
from clusterkit.trackers.event_files import write_event_file
from clusterkit.trackers.mlflow_runs import MlflowRuns

if TYPE_CHECKING:
    from clusterkit.config.models import Trackers


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
    results: Path,
    trackers: Trackers,
    *,
    experiment: str,
    waiting: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Tracked, ...]:
    """Copy what is new of some runs' metrics to each tracker. What fails for one does not stop the others.

    Args:
        runs: of the project; those without metrics here are passed over.
        results: the results folder.
        trackers: the places.
        experiment: name of MLflow's experiment.
        waiting: called if another process writes to the results folder.
        tell: called with a line about what takes long.
    """
    metrics = {run: results / run.run_id / "metrics.jsonl" for run in runs}
    here = {run: path for run, path in metrics.items() if path.is_file()}
    if not here or (trackers.tensorboard is None and trackers.mlflow is None):
        return ()
    done: list[Tracked] = []
    with alone(results, waiting):  # nothing else writes to the trackers or the files then
        if trackers.tensorboard is not None:
            there = Tracked("TensorBoard", str(trackers.tensorboard))
            done.append(_each_run(there, here, partial(_to_event_files, trackers.tensorboard)))
        if trackers.mlflow is not None:
            there = Tracked("MLflow", trackers.mlflow)
            done.append(_each_run(there, here, partial(_to_mlflow, trackers.mlflow, experiment, tell)))
    return tuple(done)


def joined(before: Sequence[Tracked], now: Sequence[Tracked]) -> tuple[Tracked, ...]:
    """What was done for each tracker at two looks, with the error of the second if that did anything."""
    runs = {one.tracker: one.runs for one in before}
    new = [replace(one, runs=tuple(dict.fromkeys((*runs.get(one.tracker, ()), *one.runs)))) for one in now]
    return tuple(new or before)


_Update = Callable[[LedgerRun, Path], bool]
"""Brings one run up to date from its metrics.jsonl; returns whether anything has changed."""


def _to_event_files(folder: Path) -> _Update:
    return lambda run, metrics: write_event_file(metrics, folder, run.run_id)


def _to_mlflow(uri: str, experiment: str, tell: Callable[[str], None]) -> _Update:
    there = MlflowRuns(uri, experiment, tell=tell)

    def update(run: LedgerRun, metrics: Path) -> bool:
        try:
            directory = read_run_dir(metrics.parent)
        except RunError:
            return False  # the pull has already reported the missing run.json
        return there.log(described(directory, run.state), metrics)

    return update


def _each_run(tracker: Tracked, here: Mapping[LedgerRun, Path], opened: Callable[[], _Update]) -> Tracked:
    """Brings each run up to date; what fails for one run is kept, and what fails for all ends it."""
    runs: list[str] = []
    failed: dict[str, str] = {}
    error: TrackerError | None = None
    try:
        update = opened()
        for run, metrics in here.items():
            try:
                if update(run, metrics):
                    runs.append(run.run_id)
            except TrackerUnusableError:
                raise
            except TrackerError as fault:
                failed[run.run_id] = fault.cause
    except TrackerUnusableError as fault:
        error = fault
    if failed and error is None:
        first, why = next(iter(failed.items()))
        error = TrackerError(
            f"{tracker.tracker}: {len(failed)} of {len(here)} runs could not be brought up to date: "
            f"{first}: {why}",
            hint="correct this, then `clusterkit sync-results` adds what is missing",
        )
    return replace(tracker, runs=tuple(runs), failed=failed, error=error)
