"""Brings the trackers of the project up to date with the runs that are here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import RunError, TrackerError
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
    error: TrackerError | None = None
    """Why the others were not; the next sync does it."""


def track(
    runs: Sequence[LedgerRun],
    results: Path,
    trackers: Trackers,
    *,
    experiment: str,
    waiting: Callable[[], None] = lambda: None,
    tell: Callable[[str], None] = lambda _: None,
) -> tuple[Tracked, ...]:
    """Copy what is new of some runs' metrics to each tracker. An error of one does not stop the other.

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
    done = []
    with alone(results, waiting):  # nothing else writes to the trackers or the files then
        if trackers.tensorboard is not None:
            folder = trackers.tensorboard
            done.append(_collected("TensorBoard", str(folder), _to_event_files(here, folder)))
        if trackers.mlflow is not None:
            runs_there = partial(MlflowRuns, trackers.mlflow, experiment, tell=tell)
            done.append(_collected("MLflow", trackers.mlflow, _to_mlflow(here, runs_there)))
    return tuple(done)


def joined(before: Sequence[Tracked], now: Sequence[Tracked]) -> tuple[Tracked, ...]:
    """What was done for each tracker at two looks, with the error of the second if that did anything."""
    runs = {one.tracker: one.runs for one in before}
    new = [replace(one, runs=tuple(dict.fromkeys((*runs.get(one.tracker, ()), *one.runs)))) for one in now]
    return tuple(new or before)


def _to_event_files(here: Mapping[LedgerRun, Path], folder: Path) -> Iterator[str]:
    for run, metrics in here.items():
        if write_event_file(metrics, folder, run.run_id):
            yield run.run_id


def _to_mlflow(here: Mapping[LedgerRun, Path], runs_there: Callable[[], MlflowRuns]) -> Iterator[str]:
    there = runs_there()
    for run, metrics in here.items():
        try:
            directory = read_run_dir(metrics.parent)
        except RunError:
            continue  # the pull has already reported the missing run.json
        if there.log(described(directory, run.state), metrics):
            yield run.run_id


def _collected(tracker: str, where: str, updated: Iterator[str]) -> Tracked:
    runs: list[str] = []
    try:
        for run_id in updated:
            runs.append(run_id)  # kept even if a later one fails
    except TrackerError as error:
        return Tracked(tracker, where, tuple(runs), error)
    return Tracked(tracker, where, tuple(runs))
