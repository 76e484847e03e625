"""Queries one cluster about runs over an open connection, one round trip per query."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import ENDS, Job, JobState
from clusterkit.backends.submission import DEFERRED, Submission
from clusterkit.probes import Answers, Probe, ask
from clusterkit.runs.alternatives import newest
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.record import Records, RunRecord, records
from clusterkit.runs.selection import known_state
from clusterkit.runs.state import RunState, fold
from clusterkit.runs.verdict import may_go_on
from clusterkit.site import Site
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


@dataclass
class Observer:
    """Observes the runs of one cluster; keeps the scheduler's last answer between queries."""

    cluster: Cluster
    transport: Transport
    trouble: str | None = None
    """Why the last query to the scheduler failed."""
    seconds: float = 0.0
    """Duration of the last query."""
    _jobs: Mapping[str, Job] = field(default_factory=dict)
    _ids: frozenset[str] = frozenset()
    """Job ids in the last query; an id that is not among them may still be known to the scheduler."""
    _asked: float = 0.0
    """Time of the last query, in seconds of the monotonic clock."""
    _read: Records = field(default_factory=Records)
    """The run directories' files in the last answer."""

    def ask(self, runs: Sequence[LedgerRun], *also: Probe[object]) -> tuple[list[RunState], Answers]:
        """Queries the scheduler and reads the run directories.

        A run directory may name a later job than the ledger knows. If the scheduler's answer lacks that job,
        the scheduler is queried once more.

        Args:
            runs: runs of this cluster.
            also: additional probes for the same round trip.

        Returns:
            States in the order of the runs, and the answers to the other probes.

        Raises:
            TransportError, SchedulerError, RunError: the answer was missing or incomplete.
        """
        ids = [run.job_id for run in runs if run.job_id]
        found, answers = self._question(ids, runs, *also)
        newest = [self._newest(run, found[run.run_dir])[0] for run in runs]
        later = [job_id for job_id in newest if self._unheard(job_id)]
        if later and self.trouble is None:
            found, _ = self._question([*ids, *later], runs)
        self._read = found
        return self._states(runs, found), answers

    def proves_end(self, run: LedgerRun, state: RunState) -> bool:
        """Returns whether a run's files or the scheduler's record of its job show that it has ended for good.

        That this scheduler does not know the job shows nothing of a run that this laptop did not submit: the
        job may be another cluster's. That cluster may also start a job again that it has interrupted.

        Args:
            run: one of the runs that `ask` was last called with.
            state: its state in the answer.
        """
        if state.state.active or state.state in (JobState.UNKNOWN, JobState.PREEMPTED):
            return False
        job = self._job(state.job_id, run) if state.job_id else None
        if job is not None and job.confirmed:
            return True
        record = self._read[run.run_dir]
        if state.state is JobState.NOT_SUBMITTED:
            return record.submission is not None and not record.submission.doubtful
        started = record.started
        begun = int(((started.start if started else None) or {}).get("submission") or 0)
        if not record.alternatives and any(later.number > begun for later in record.submissions):
            return False  # of another job than the files tell of
        if record.cancelled or started is None or started.exit is None:
            return record.cancelled
        return not may_go_on(record, started.exit)

    def look(self, runs: Sequence[LedgerRun]) -> list[RunState]:
        """Reads only the run directories and reuses the scheduler's last answer.

        Raises:
            TransportError, RunError: the answer was missing or incomplete.
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
        """Returns whether the scheduler has neither reported a job nor been queried about it."""
        return job_id != "" and job_id not in self._ids and job_id not in self._jobs

    def _states(self, runs: Sequence[LedgerRun], found: Mapping[str, RunRecord]) -> list[RunState]:
        moment = time.time()
        return [self._state(run, found[run.run_dir], moment) for run in runs]

    def _state(self, run: LedgerRun, record: RunRecord, moment: float) -> RunState:
        last = known_state(run)
        if run.state == JobState.DEFERRED:
            last = _deferred(record, last)
        job_id, number = self._newest(run, record)
        job = self._job(job_id, run)
        if not job_id or (job is None and self._unheard(job_id)):
            return last  # there may be no job, or it has not been queried yet
        if job is not None and not job.state.active:
            job = self._task(job, record)
        limit = None
        if job is None or job.limit_seconds is None:
            limit = backend_of(self.cluster).asked(record.request.options).seconds
        state = fold(record, job, limit=limit, last=last, until_done=run.until_done, moment=moment)
        others = self._others(job_id, record)
        if others and state.state.waiting:
            state = replace(state, why="; ".join(filter(None, (state.why, _also(others)))))
        return replace(state, job_id=job_id, submission=number, others=others)

    def _newest(self, run: LedgerRun, record: RunRecord) -> tuple[str, int]:
        """Returns the id of the current job and the number of its submission.

        The run directory may list later jobs than the ledger: those of another laptop or, in a chain of jobs,
        the next link, which is submitted before the current one ends.
        """
        job_id, number, backend = run.job_id, run.submission, backend_of(self.cluster)
        if record.alternatives:
            return self._first(run, record)
        for later in record.submissions:
            known = number if job_id else number - 1  # also read the answer to an interrupted one
            found = later.job_id(backend)
            if later.number <= known or found is None:
                continue
            if later.kind == "chain" and not self._goes_on(job_id, later, run, record):
                continue  # what tries again with more memory may come after it
            job_id, number = found, later.number
        return job_id, number

    def _first(self, run: LedgerRun, record: RunRecord) -> tuple[str, int]:
        """Returns the job that took a run, or else the one that is likely to: its id and its number."""
        ids = _alternative_ids(self.cluster, record)
        begun = (record.started.start if record.started else None) or {}
        number = begun.get("submission")
        if number not in ids:
            number = newest(record.alternatives, ids, self._jobs)
        return ids.get(number) or run.job_id, number

    def _others(self, job_id: str, record: RunRecord) -> tuple[str, ...]:
        """Returns the run's jobs that are in the queue beside that one."""
        ids = _alternative_ids(self.cluster, record).values() if record.alternatives else ()
        known = (self._jobs[one] for one in ids if one != job_id and one in self._jobs)
        return tuple(one.job_id for one in known if one.state.active)

    def _goes_on(self, job_id: str, link: Submission, run: LedgerRun, record: RunRecord) -> bool:
        """Returns whether the next link of a chain has taken over from a job."""
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
        """Returns the task that started last, for an array whose tasks run one after the other."""
        start = (record.started.start if record.started else None) or {}
        recorded = str(start.get("job_id") or "")
        tasks = (known for known in self._jobs if known.partition(";")[0] == recorded)
        task = next(tasks, None)
        if task is None or task == job.job_id or backend_of(self.cluster).array_id(task) != job.job_id:
            return job
        return replace(self._jobs[task], job_id=job.job_id)

    def _job(self, job_id: str, run: LedgerRun) -> Job | None:
        """Returns the scheduler's record of a run's job; ignores a job with another name."""
        job = self._jobs.get(job_id)
        if job is None and self.trouble is not None:
            return Job(job_id, JobState.UNKNOWN, "", reason=self.trouble, confirmed=False)
        if job is None or (job.name is not None and _owner(job.name) not in (run.run_id, run.group)):
            return None
        if job.state is JobState.RUNNING and job.elapsed_seconds is not None:
            return replace(job, elapsed_seconds=job.elapsed_seconds + int(time.monotonic() - self._asked))
        return job


def _deferred(record: RunRecord, last: RunState) -> RunState:
    """Returns the state of a run that a job of its group was to submit, as far as no job is known."""
    refusal = record.submission.refusal if record.submission else None
    if record.cancelled:
        return replace(last, state=JobState.CANCELLED, why=ENDS[JobState.CANCELLED], final=True)
    if refusal is not None:
        return replace(last, state=JobState.NOT_SUBMITTED, why=f"the scheduler refused it: {refusal}")
    return replace(last, why=DEFERRED)


def _also(others: Sequence[str]) -> str:
    return f"or {' or '.join(others)} starts first"


def _alternative_ids(cluster: Cluster, record: RunRecord) -> dict[int, str]:
    """Returns the job ids of a run's alternatives, by the number of the submission."""
    found = {one.number: one.job_id(backend_of(cluster)) for one in record.alternatives}
    return {number: job_id for number, job_id in found.items() if job_id is not None}


def _owner(job_name: str) -> str:
    """Returns the run or group in a job's name, without the number of a later submission."""
    owner, dot, number = job_name.rpartition(".")
    return owner if dot and number.isdigit() else job_name


def ask_job(site: Site, job_id: str) -> Job | None:
    """Returns the scheduler's record of one job; None if the scheduler does not know the job.

    Raises:
        TransportError, SchedulerError: the cluster did not answer.
    """
    probe = backend_of(site.cluster).query([job_id])
    return ask(site.transport, probe, check=False).of(probe).jobs.get(job_id)


def query(cluster: Cluster, transport: Transport, runs: Sequence[LedgerRun]) -> list[RunState]:
    """Returns the states of one cluster's runs, in order, in one round trip; records nothing."""
    return Observer(cluster, transport).ask(runs)[0]
