"""What MLflow shows of a run besides its metrics: parameters, tags, state and times. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from clusterkit.backends.jobs import JobState
from clusterkit.runs.program import trains
from clusterkit.runs.run_dir import RunDirectory, moment, table


class RunStatus(StrEnum):
    """MLflow's states of a run."""

    RUNNING = "RUNNING"
    """Also waiting, or preempted and perhaps restarted."""
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"
    """Cancelled."""


_BY_STATE: Mapping[str, RunStatus] = {
    JobState.COMPLETED: RunStatus.FINISHED,
    JobState.CANCELLED: RunStatus.KILLED,
    JobState.FAILED: RunStatus.FAILED,
    JobState.TIMEOUT: RunStatus.FAILED,
    JobState.OUT_OF_MEMORY: RunStatus.FAILED,
    JobState.NODE_FAIL: RunStatus.FAILED,
}


@dataclass(frozen=True)
class DescribedRun:
    """A run as MLflow should show it."""

    run_id: str
    status: RunStatus
    started: float | None
    """Unix seconds."""
    ended: float | None
    """Unix seconds; None while it runs."""
    parameters: Mapping[str, str]
    tags: Mapping[str, str]


def described(run: RunDirectory, state: str) -> DescribedRun:
    """Describe a run.

    Args:
        run: its pulled run directory, which overrides an active state: the job records its own end.
        state: the newest known `JobState` of its job.
    """
    status = _BY_STATE.get(state, RunStatus.RUNNING)
    last = run.attempts[-1] if run.attempts else None
    if last is not None and run.ended:
        completed = (last.exit or {}).get("why") == "completed"
        other = RunStatus.FAILED if last.cancel is None else RunStatus.KILLED
        status = RunStatus.FINISHED if completed else other
    over = last is not None and status is not RunStatus.RUNNING
    return DescribedRun(
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
    yield "clusterkit.name", run.document.get("name")
    yield "clusterkit.cluster", run.document.get("cluster")
    yield "clusterkit.group", table(run.document, "group").get("id")
    snapshot = table(run.document, "snapshot")
    yield "mlflow.source.git.commit", snapshot.get("git_commit")
    yield "mlflow.source.git.branch", snapshot.get("git_branch")
