"""Settles submissions whose answer never arrived, so that none can reach the scheduler later."""

from __future__ import annotations

import json
import posixpath
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.backends.submission import SubmissionOutcome, give_up, job_name, outcome
from clusterkit.folders import is_held
from clusterkit.probes import ask
from clusterkit.runs.ledger import ALONE, Ledger, LedgerRun
from clusterkit.runs.record import RunRecord, records
from clusterkit.transport.base import Transport
from clusterkit.untrusted import parse_object

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


def settle(
    cluster: Cluster, transport: Transport, ledger: Ledger, runs: Sequence[LedgerRun], alive: str = ""
) -> dict[str, SubmissionOutcome]:
    """Determines and records the outcome of submissions whose answer never arrived, in one round trip.

    A submission whose command is gone and that has not asked the scheduler is given up: nothing that the
    command left on the cluster can ask later.

    Args:
        cluster: the runs' cluster.
        transport: the connection to the cluster.
        ledger: the project's ledger.
        runs: ledger rows of SUBMITTING runs on this cluster.
        alive: the work folder of this command's own submission.

    Returns:
        Outcomes by run id, except for runs that another command is submitting: PENDING with a job id, still
        SUBMITTING, or NOT_SUBMITTED; the last two with the reason.
    """
    tokens = {run.run_id: _handing(run) for run in runs}
    owners = {token.partition(".")[0] for token in tokens.values()} - {"", alive}
    held = {name for name in owners if is_held(ledger.folder, name)}
    for run in runs:
        if tokens[run.run_id].partition(".")[0] in held:
            note(ledger, run, SubmissionOutcome(JobState.SUBMITTING, why="another command is submitting it"))
    runs = [run for run in runs if tokens[run.run_id].partition(".")[0] not in held]
    if not runs:
        return {}
    backend = backend_of(cluster)
    names = {run.run_id: _token(cluster, run) for run in runs}
    scripts = {names[run.run_id]: f"{run.run_dir}/job.sh" for run in runs}
    since = {names[run.run_id]: day_before(run.submitted) for run in runs}
    roots = {tokens[run.run_id]: posixpath.dirname(posixpath.dirname(run.run_dir)) for run in runs}
    ends = {token: give_up(root, token) for token, root in roots.items() if token}
    searches = {name: backend.find(name, script, since[name]) for name, script in scripts.items()}
    files = records([run.run_dir for run in runs])
    answers = ask(transport, *ends.values(), *searches.values(), files)
    read = answers.of(files)
    settled = {}
    for run in runs:
        record, token = read[run.run_dir], tokens[run.run_id]
        found = answers.of(searches[names[run.run_id]])
        submission = next((each for each in record.submissions if each.number == run.submission), None)
        over = not token or answers.of(ends[token])
        started = _started(record, run.submission)
        came = outcome(backend, submission, started, found, now=record.now, over=over)
        settled[run.run_id] = came
        note(ledger, run, came)
    return settled


def settle_open(
    cluster: Cluster, transport: Transport, ledger: Ledger, runs: Sequence[LedgerRun]
) -> list[LedgerRun]:
    """Settles interrupted submissions, without a round trip if there are none; returns all runs."""
    unclear = [run for run in runs if run.state == JobState.SUBMITTING]
    if unclear:
        settle(cluster, transport, ledger, unclear)
    return [(ledger.get(run.run_id) or run) if run in unclear else run for run in runs]


def note(ledger: Ledger, run: LedgerRun, came: SubmissionOutcome) -> None:
    """Records the outcome of a run's submission in the ledger."""
    token = _handing(run)
    last = json.dumps({"state": came.state, "why": came.why, "token": token, "updated": time.time()})
    ledger.settle(run.run_id, came.job_id or "", came.state, last, token)


def _handing(run: LedgerRun) -> str:
    """Returns the token of a SUBMITTING run's hand-over; empty for an adopted run."""
    return str((parse_object(run.last) or {}).get("token") or "")


def _token(cluster: Cluster, run: LedgerRun) -> str:
    """Returns the name of the run's newest job; without job arrays each run of a group has its own job."""
    in_array = run.group and run.part != ALONE and backend_of(cluster).can.arrays
    if in_array and run.submission == 0:
        return job_name(run.group, run.part)
    return job_name(run.run_id, run.submission)


def _started(record: RunRecord, number: int) -> str | None:
    """Returns the job id of this submission's newest attempt; None if none has started."""
    starts = (attempt.start for attempt in reversed(record.attempts) if attempt.start is not None)
    ids = (str(start.get("job_id") or "") for start in starts if start.get("submission", 0) == number)
    return next(ids, None) or None


def day_before(submitted: str) -> str:
    """Returns the UTC day before a submission, because the cluster's day may begin later."""
    try:
        moment = datetime.fromisoformat(submitted)
    except ValueError:
        moment = datetime.now(UTC) - timedelta(days=30)
    return f"{moment - timedelta(days=1):%Y-%m-%d}"
