"""cancel: end runs, and leave a record that it was asked for."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import SchedulerError
from clusterkit.ledger import Ledger, LedgerRun
from clusterkit.scheduler import JobState
from clusterkit.site import connected, scheduler_of
from clusterkit.verbs.status import query

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

# $1 record, then run directories. The record lies with the newest start, or where the first one would be.
_RECORD = """
record=$1; shift; umask 077
for run in "$@"; do
  attempt=$(ls "$run/attempts" | sort -n | tail -n 1)
  folder=$run/attempts/${attempt:-0}
  mkdir -p "$folder" && printf '%s\\n' "$record" >"$folder/.cancel.tmp" &&
    mv -f "$folder/.cancel.tmp" "$folder/cancel.json" || exit 1
done
"""


@dataclass(frozen=True)
class Cancelled:
    """What became of one run."""

    run: LedgerRun
    was: JobState
    """Its state before; only an active run was cancelled."""


def cancel(settings: Settings, ledger: Ledger, names: Sequence[str]) -> list[Cancelled]:
    """Cancel runs; one that has ended already is left alone.

    Raises:
        RunError: a name matches no run.
        SchedulerError: the scheduler refused.
        TransportError: a cluster cannot be reached.
    """
    runs = list(dict.fromkeys(ledger.find(names)))
    done: list[Cancelled] = []
    for cluster_name in dict.fromkeys(run.cluster for run in runs):
        mine = [run for run in runs if run.cluster == cluster_name]
        cluster = settings.cluster(cluster_name)
        with connected(cluster) as transport:
            states = query(cluster, transport, mine)
            ending = [run for run, state in zip(mine, states, strict=True) if _may_run(state.state)]
            if ending:
                for run in ending:
                    record = json.dumps({"requested": int(time.time()), "job_id": run.job_id})
                    transport.run(["sh", "-c", _RECORD, "sh", record, run.run_dir])
                ids = [run.job_id for run in ending if not _shared(run, ending, ledger)]
                argv = scheduler_of(cluster).cancel_argv(ids)
                result = transport.run(argv, check=False, timeout=120.0) if ids else None
                if result is not None and result.returncode != 0:
                    words = " / ".join(result.error_text.strip().splitlines()) or "no reason given"
                    raise SchedulerError(f"{transport.where}: the scheduler did not cancel: {words}")
                ledger.set_states((run.run_id, JobState.CANCELLED) for run in ending)
        done += [Cancelled(run, state.state) for run, state in zip(mine, states, strict=True)]
    return done


def _shared(run: LedgerRun, ending: Sequence[LedgerRun], ledger: Ledger) -> bool:
    """Whether other runs go on in the same job: it then ends this one alone, by the record."""
    chosen = {one.run_id for one in ending}
    return any(
        other.job_id == run.job_id and other.run_id not in chosen and JobState(other.state).active
        for other in ledger.runs(cluster=run.cluster)
    )


def _may_run(state: JobState) -> bool:
    return state.active or state is JobState.UNKNOWN
