"""Resolves `--after` names to the jobs that the scheduler waits for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.base import Backend, Kind, Parent
from clusterkit.backends.jobs import JobState
from clusterkit.config.options import NATIVE_OPTION
from clusterkit.errors import ConfigError, RunError
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.plan import After
from clusterkit.site import Site

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


def check_after(ledger: Ledger, cluster: Cluster, after: Sequence[After], native: Sequence[str]) -> None:
    """Checks without a connection that the runs are known and on this cluster.

    Raises:
        RunError: a run is unknown.
        ConfigError: a run is on another cluster or has further jobs, or `native` sets a dependency too.
    """
    if after and "dependency" in backend_of(cluster).names(native):
        raise ConfigError(
            f"--after and {NATIVE_OPTION} dependency=... both say what to wait for", hint="use one of them"
        )
    for run, _ in _runs(ledger, after):
        if run.cluster != cluster.name:
            raise ConfigError(
                f"--after {run.run_id}: it is on {run.cluster}, and this run goes to {cluster.name}",
                hint="a scheduler waits for its own jobs only",
            )
        if run.until_done in ("array", "chain") and run.state != JobState.COMPLETED:
            raise ConfigError(
                f"--after {run.run_id}: it goes on in more jobs than its first one ({run.until_done})",
                hint='where the site allows it, continue_by = "requeue" keeps one job',
            )


def parents(site: Site, ledger: Ledger, after: Sequence[After]) -> tuple[Parent, ...]:
    """Returns the jobs to wait for, without runs that have already completed.

    Raises:
        RunError: a run ended without completing, or has no job, so the wait would never end.
        TransportError, SchedulerError: the cluster did not answer.
    """
    wanted = _runs(ledger, after)
    if not wanted:
        return ()
    from clusterkit.runs.observe import query  # deferred: most runs wait for nothing

    states = query(site.cluster, site.transport, [run for run, _ in wanted])
    found: list[tuple[LedgerRun, Kind]] = []
    for (run, kind), state in zip(wanted, states, strict=True):
        if state.state.active or state.state is JobState.UNKNOWN:
            if not run.job_id:
                raise RunError(
                    f"--after {run.run_id}: it is not known yet whether it has a job",
                    hint="`clusterkit status` tells in a moment",
                )
            found.append((run, kind))
        elif state.state is not JobState.COMPLETED and kind == "ok":
            raise RunError(
                f"--after {run.run_id}: it has ended and is {state.state}, so the new run would never start",
                hint=f"--after {run.run_id}:any waits for its end only",
            )
    return tuple(_folded(backend_of(site.cluster), found, ledger))


def _runs(ledger: Ledger, after: Sequence[After]) -> list[tuple[LedgerRun, Kind]]:
    kinds: dict[LedgerRun, Kind] = {}
    for one in after:
        for run in ledger.find([one.name]):
            kinds[run] = "ok" if "ok" in (one.kind, kinds.get(run)) else "any"
    return list(kinds.items())


def _folded(backend: Backend, found: Sequence[tuple[LedgerRun, Kind]], ledger: Ledger) -> list[Parent]:
    """Replaces the tasks of a job array with the array itself if all of its tasks are awaited."""
    wanted = Counter((backend.array_id(run.job_id), kind) for run, kind in found)
    tasks = Counter(backend.array_id(run.job_id) for run in ledger.runs() if run.state != JobState.COMPLETED)
    folded: dict[tuple[str, Kind], Parent] = {}
    for run, kind in found:
        base = backend.array_id(run.job_id)
        job_id = base if wanted[base, kind] >= tasks[base] else run.job_id
        folded.setdefault((job_id, kind), Parent(job_id, run.run_dir, kind))
    return list(folded.values())
