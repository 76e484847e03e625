"""Asks one cluster about runs, over a connection that is open: one round trip a question."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.ledger import LedgerRun
from clusterkit.record import RunRecord, collect_script, parse_collect
from clusterkit.scheduler import Job, JobState
from clusterkit.site import scheduler_of
from clusterkit.state import RunState, fold
from clusterkit.transport.base import Transport
from clusterkit.verbs.selection import known_state

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_SECONDS = 120.0


@dataclass
class Observer:
    """The runs of one cluster. What the scheduler said last is kept for looks in between."""

    cluster: Cluster
    transport: Transport
    trouble: str | None = None
    """Why the scheduler could not be asked last time."""
    seconds: float = 0.0
    """How long the last question to it took."""
    _jobs: Mapping[str, Job] = field(default_factory=dict)
    _ids: frozenset[str] = frozenset()
    """What the scheduler was asked about last time; of others it has not said that it does not know them."""
    _asked: float = 0.0
    """When, seconds of the monotonic clock."""

    def ask(self, runs: Sequence[LedgerRun], *, also: str = "") -> tuple[list[RunState], str]:
        """Ask the scheduler and read the run directories.

        Args:
            runs: of this cluster.
            also: a shell fragment to run on the way.

        Returns:
            States in the order of the runs, and all that was printed.

        Raises:
            TransportError, SchedulerError, RunError: there was no answer, or half of one.
        """
        scheduler = scheduler_of(self.cluster)
        self._asked = time.monotonic()
        ids = list(dict.fromkeys(run.job_id for run in runs if run.job_id))
        text = self._run(scheduler.query_script(ids) + also, runs)
        self._ids, self.seconds = frozenset(ids), time.monotonic() - self._asked
        self._jobs, self.trouble = scheduler.parse_query(text), scheduler.parse_trouble(text)
        return self._states(runs, parse_collect(text)), text

    def look(self, runs: Sequence[LedgerRun]) -> list[RunState]:
        """Read the run directories only; what the scheduler said last still counts.

        Raises:
            TransportError, RunError: there was no answer, or half of one.
        """
        return self._states(runs, parse_collect(self._run("", runs)))

    def _run(self, script: str, runs: Sequence[LedgerRun]) -> str:
        script += collect_script([run.run_dir for run in runs])
        return self.transport.run(
            ["sh"], stdin=script.encode("utf-8", "surrogateescape"), timeout=_SECONDS
        ).text

    def _states(self, runs: Sequence[LedgerRun], records: Mapping[str, RunRecord]) -> list[RunState]:
        moment = time.time()
        return [self._state(run, records[run.run_dir], moment) for run in runs]

    def _state(self, run: LedgerRun, record: RunRecord, moment: float) -> RunState:
        last, newest = known_state(run), record.submission
        later = (
            newest is not None and newest.number > run.submission
        )  # of another laptop, or of the job itself
        job_id = (newest.job_id if newest is not None and later else None) or run.job_id
        job = self._job(job_id, run)
        if not job_id or (job is None and run.job_id not in self._ids):
            return last  # there may be no job, or it was not asked about yet
        state = fold(record, job, last=last, until_done=run.until_done, moment=moment)
        number = max(newest.number, run.submission) if newest is not None else run.submission
        return replace(state, job_id=job_id, submission=number)

    def _job(self, job_id: str, run: LedgerRun) -> Job | None:
        """What the scheduler knows of a run's job; one with the name of something else is not the run's."""
        job = self._jobs.get(job_id)
        if job is None and self.trouble is not None:
            return Job(job_id, JobState.UNKNOWN, "", reason=f"squeue failed: {self.trouble}", confirmed=False)
        if job is None or (job.name is not None and _owner(job.name) not in (run.run_id, run.group)):
            return None
        if job.state is JobState.RUNNING and job.elapsed_seconds is not None:
            return replace(job, elapsed_seconds=job.elapsed_seconds + int(time.monotonic() - self._asked))
        return job


def _owner(job_name: str) -> str:
    """The run or group of a job: its name is that, and the number of a later submission."""
    owner, dot, number = job_name.rpartition(".")
    return owner if dot and number.isdigit() else job_name
