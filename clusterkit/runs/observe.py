"""Queries one cluster about runs over an open connection, one round trip per query."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.jobs import Job, JobState
from clusterkit.probes import Answers, Probe, ask
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.record import Records, RunRecord, records
from clusterkit.runs.selection import known_state
from clusterkit.runs.state import RunState, fold
from clusterkit.runs.submission import Submission
from clusterkit.site import Site
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


@dataclass
class Observer:
    """Observes the runs of one cluster; the scheduler's last answer is kept for reads in between."""

    cluster: Cluster
    transport: Transport
    trouble: str | None = None
    """Why the last query to the scheduler failed."""
    seconds: float = 0.0
    """How long that query took."""
    _jobs: Mapping[str, Job] = field(default_factory=dict)
    _ids: frozenset[str] = frozenset()
    """Job ids in the last query; about others the scheduler has not said that it does not know them."""
    _asked: float = 0.0
    """Time of the last query, seconds of the monotonic clock."""

    def ask(self, runs: Sequence[LedgerRun], *also: Probe[object]) -> tuple[list[RunState], Answers]:
        """Query the scheduler and read the run directories.

        A run directory may name a later job than the ledger knows. If the scheduler's answer lacks it, the
        scheduler is asked once more.

        Args:
            runs: runs of this cluster.
            also: more probes for the same round trip.

        Returns:
            States in the order of the runs, and the answers to the other probes.

        Raises:
            TransportError, SchedulerError, RunError: there was no complete answer.
        """
        ids = [run.job_id for run in runs if run.job_id]
        found, answers = self._question(ids, runs, *also)
        newest = [self._newest(run, found[run.run_dir])[0] for run in runs]
        later = [job_id for job_id in newest if self._unheard(job_id)]
        if later and self.trouble is None:
            found, _ = self._question([*ids, *later], runs)
        return self._states(runs, found), answers

    def look(self, runs: Sequence[LedgerRun]) -> list[RunState]:
        """Read only the run directories; the scheduler's last answer still counts.

        Raises:
            TransportError, RunError: there was no complete answer.
        """
        probe = records([run.run_dir for run in runs])
        return self._states(runs, ask(self.transport, probe).of(probe))

    def _question(
        self, ids: Sequence[str], runs: Sequence[LedgerRun], *also: Probe[object]
    ) -> tuple[Records, Answers]:
        queue = backend_of(self.cluster).query(list(dict.fromkeys(ids)))
        files = records([run.run_dir for run in runs])
        self._asked = time.monotonic()
        answers = ask(self.transport, queue, *also, files)
        self._ids, self.seconds = frozenset(ids), time.monotonic() - self._asked
        told = answers.of(queue)
        self._jobs, self.trouble = told.jobs, told.trouble
        return answers.of(files), answers

    def _unheard(self, job_id: str) -> bool:
        """Whether the scheduler has neither mentioned a job nor been asked about it."""
        return job_id != "" and job_id not in self._ids and job_id not in self._jobs

    def _states(self, runs: Sequence[LedgerRun], found: Mapping[str, RunRecord]) -> list[RunState]:
        moment = time.time()
        return [self._state(run, found[run.run_dir], moment) for run in runs]

    def _state(self, run: LedgerRun, record: RunRecord, moment: float) -> RunState:
        last = known_state(run)
        job_id, number = self._newest(run, record)
        job = self._job(job_id, run)
        if not job_id or (job is None and self._unheard(job_id)):
            return last  # there may be no job, or it was not asked about yet
        if job is not None and not job.state.active:
            job = self._task(job, record)
        limit = None
        if job is None or job.limit_seconds is None:
            limit = backend_of(self.cluster).asked(record.options).seconds
        state = fold(record, job, limit=limit, last=last, until_done=run.until_done, moment=moment)
        return replace(state, job_id=job_id, submission=number)

    def _newest(self, run: LedgerRun, record: RunRecord) -> tuple[str, int]:
        """Id of the current job, and the number of its submission.

        The run directory may know later jobs than the ledger: those of another laptop or, in a chain of jobs,
        the next link, which is submitted before the current one ends.
        """
        job_id, number, backend = run.job_id, run.submission, backend_of(self.cluster)
        for later in record.submissions:
            known = number if job_id else number - 1  # of a hand-over that was interrupted it has the answer
            found = later.job_id(backend)
            if later.number <= known or found is None:
                continue
            if (later.request or {}).get("kind") == "chain" and not self._goes_on(job_id, later, run, record):
                break
            job_id, number = found, later.number
        return job_id, number

    def _goes_on(self, job_id: str, link: Submission, run: LedgerRun, record: RunRecord) -> bool:
        """Whether the next link of a chain has taken over from a job."""
        if any((attempt.start or {}).get("submission") == link.number for attempt in record.attempts):
            return True
        before, after = self._job(job_id, run), self._job(link.job_id(backend_of(self.cluster)) or "", run)
        newest = record.started
        why = (newest.exit or {}).get("why") if newest is not None else None
        if why == "completed" or (before is not None and before.state.active):
            return False
        if before is not None and not before.confirmed:
            return why == "requeue"
        return after is not None and after.state.active

    def _task(self, job: Job, record: RunRecord) -> Job:
        """The task that started last, of an array whose tasks run one after the other."""
        start = (record.started.start if record.started else None) or {}
        recorded = str(start.get("job_id") or "")
        tasks = (known for known in self._jobs if known.partition(";")[0] == recorded)
        task = next(tasks, None)
        if task is None or task == job.job_id or backend_of(self.cluster).array_id(task) != job.job_id:
            return job
        return replace(self._jobs[task], job_id=job.job_id)

    def _job(self, job_id: str, run: LedgerRun) -> Job | None:
        """The scheduler's record of a run's job; a job with another name is not the run's."""
        job = self._jobs.get(job_id)
        if job is None and self.trouble is not None:
            return Job(job_id, JobState.UNKNOWN, "", reason=self.trouble, confirmed=False)
        if job is None or (job.name is not None and _owner(job.name) not in (run.run_id, run.group)):
            return None
        if job.state is JobState.RUNNING and job.elapsed_seconds is not None:
            return replace(job, elapsed_seconds=job.elapsed_seconds + int(time.monotonic() - self._asked))
        return job


def _owner(job_name: str) -> str:
    """The run or group in a job's name, without the number of a later submission."""
    owner, dot, number = job_name.rpartition(".")
    return owner if dot and number.isdigit() else job_name


def ask_job(site: Site, job_id: str) -> Job | None:
    """The scheduler's record of one job; None when it does not know it.

    Raises:
        TransportError, SchedulerError: the cluster did not answer.
    """
    probe = backend_of(site.cluster).query([job_id])
    return ask(site.transport, probe, check=False).of(probe).jobs.get(job_id)


def query(cluster: Cluster, transport: Transport, runs: Sequence[LedgerRun]) -> list[RunState]:
    """States of one cluster's runs, in order, in one round trip; nothing is recorded."""
    return Observer(cluster, transport).ask(runs)[0]
