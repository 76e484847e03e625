"""Ends runs, and records in their run directories that this was requested.

The record is written before the scheduler cancels the job, so that no run resumes by itself afterwards.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit.backends.base import Backend, backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.errors import SchedulerError
from clusterkit.probes import ask
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.record import records
from clusterkit.runs.secret_values import forget_secrets
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_CANCEL_SECONDS = 120.0

# $1 run directory, $2 record. It is written to the newest attempt's folder, or that of the first one to come.
# If it cannot be written, the scheduler still cancels the job.
_RECORD = r"""
umask 077
ck_record() {
  ck_newest=0
  for ck_folder in "$1"/attempts/*/; do
    ck_folder=${ck_folder%/} ck_folder=${ck_folder##*/}
    if test "$ck_folder" -gt "$ck_newest" 2>/dev/null; then ck_newest=$ck_folder; fi
  done
  ck_folder=$1/attempts/$ck_newest
  { test -d "$ck_folder" || mkdir -p "$ck_folder"; } && printf '%s\n' "$2" >"$ck_folder/.cancel.tmp" &&
    mv -f "$ck_folder/.cancel.tmp" "$ck_folder/cancel.json"
}
"""


def end_runs(
    cluster: Cluster,
    transport: Transport,
    ledger: Ledger,
    runs: Sequence[LedgerRun],
    others: Sequence[str],
) -> None:
    """Writes the records and cancels the jobs, in one round trip.

    Args:
        cluster: where.
        transport: to it.
        ledger: of the project; learns that the runs are cancelled.
        runs: with the jobs that they have now.
        others: further jobs of theirs.

    Raises:
        SchedulerError: the scheduler refused.
        TransportError: the cluster did not answer.
    """
    now = int(time.time())
    lines = [_RECORD]
    for run in runs:
        record = json.dumps({"requested": now, "job_id": run.job_id})
        lines.append(shlex.join(["ck_record", run.run_dir, record]))
    shared = _shared(cluster, runs, ledger)
    jobs = [run.job_id for run in runs if run.job_id and run.job_id not in shared]
    jobs += others
    jobs += _links(backend_of(cluster), transport, runs)
    if jobs:
        argv = backend_of(cluster).cancel_argv(list(dict.fromkeys(jobs)))
        lines.append(f"{shlex.join(argv)} </dev/null")
    lines.append("")
    script = "\n".join(lines).encode("utf-8", "surrogateescape")
    result = transport.run(["sh"], stdin=script, check=False, timeout=_CANCEL_SECONDS)
    if result.returncode != 0:
        words = " / ".join(result.error_text.strip().splitlines()) or "no reason given"
        raise SchedulerError(
            f"{transport.where}: the scheduler did not cancel the runs: {words}",
            hint="`clusterkit status` shows what is still running; run the same command again",
        )
    ledger.set_states((run.run_id, JobState.CANCELLED) for run in runs)
    forget_secrets(cluster, transport, ledger)


def _links(backend: Backend, transport: Transport, runs: Sequence[LedgerRun]) -> list[str]:
    """Job ids of runs that continue as a chain of jobs: the next job may already be queued."""
    chains = [run.run_dir for run in runs if run.until_done == "chain"]
    if not chains:
        return []
    files = records(chains)
    read = ask(transport, files).of(files)
    submissions = [one for record in read.values() for one in record.submissions]
    return [job_id for one in submissions if (job_id := one.job_id(backend)) is not None]


def _shared(cluster: Cluster, ending: Sequence[LedgerRun], ledger: Ledger) -> set[str]:
    """Jobs in which other runs go on; such a job ends only its own runs when it sees their records."""
    chosen = {run.run_id for run in ending}
    return {
        other.job_id
        for other in ledger.runs(cluster=cluster.name)
        if other.run_id not in chosen and JobState(other.state).active
    }
