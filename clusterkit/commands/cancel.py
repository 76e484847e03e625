"""cancel: end runs, and say which of them may still have been running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ConfigError, RunError, TransportError
from clusterkit.interactive.ssh_keys import forget_ended
from clusterkit.interruption import InterruptedChange, held_back, tell
from clusterkit.runs.ending import end_runs
from clusterkit.runs.names import in_group
from clusterkit.runs.observe import query
from clusterkit.runs.settling import settle_open
from clusterkit.runs.status import StatusRow
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.transport.base import Bar, Transport

_MAY_GO_ON = frozenset(
    {
        *(state.value for state in JobState if state.active),
        *(JobState.UNKNOWN, JobState.NODE_FAIL, JobState.PREEMPTED),
    }
)
"""Last known states of runs that the scheduler may have restarted in the meantime."""


@dataclass
class Cancellation:
    """The result of cancelling runs."""

    done: list[StatusRow] = field(default_factory=list)
    """The runs with their previous states; those that may still have been running were cancelled."""
    refused: bool = False
    """Whether the user declined, so that nothing was changed."""
    silent: dict[str, str] = field(default_factory=dict)
    """Cluster -> why it did not answer; its runs were not cancelled."""
    unclear: list[LedgerRun] = field(default_factory=list)
    """Runs that may or may not have a job yet; they were not cancelled."""

    def as_objects(self) -> list[dict[str, Any]]:
        """Returns the runs as plain values, as `cancel --json` prints them."""
        return [
            {
                "run_id": row.run.run_id,
                "cluster": row.run.cluster,
                "state_before": row.state.state.value,
                "cancelled": not had_ended(row),
            }
            for row in self.done
        ]


def cancel_runs(
    settings: Settings,
    ledger: Ledger,
    runs: Sequence[LedgerRun],
    *,
    bar: Bar,
    agree: Callable[[Sequence[StatusRow]], bool] = lambda _: True,
) -> Cancellation:
    """Cancels runs that have not ended.

    The record is written before the scheduler cancels the job, so that no run resumes by itself afterwards.

    Args:
        settings: of the project.
        ledger: of the project.
        runs: to cancel.
        bar: opens progress bars.
        agree: called with those that may still run; returns whether to cancel them.

    Raises:
        SchedulerError: the scheduler refused.
    """
    result = Cancellation()
    under_way: list[str] = []
    ended: list[str] = []
    tell(lambda: _what_came(under_way, ended))
    with ExitStack() as stack:
        open_to: dict[str, tuple[Cluster, Transport]] = {}
        rows: list[StatusRow] = []
        for name in dict.fromkeys(run.cluster for run in runs):
            mine = [run for run in runs if run.cluster == name]
            try:
                cluster = settings.cluster(name)
                transport = stack.enter_context(connected(cluster))
                with bar(f"{len(mine):,} runs on {name}", None):
                    mine = settle_open(cluster, transport, ledger, mine)
                    states = query(cluster, transport, mine)
            except (TransportError, ConfigError) as error:
                result.silent[name] = error.cause
                continue
            open_to[name] = cluster, transport
            rows += [StatusRow(run, state) for run, state in zip(mine, states, strict=True)]
        result.unclear = [row.run for row in rows if row.state.state is JobState.SUBMITTING]
        rows = [row for row in rows if row.run not in result.unclear]
        ending = [row for row in rows if not had_ended(row)]
        result.refused = bool(ending) and not agree(ending)
        if result.refused:
            return result
        for name, (cluster, transport) in open_to.items():
            # If another laptop has resumed the run, its job is not the one in the ledger.
            mine = [
                replace(row.run, job_id=row.state.job_id or row.run.job_id)
                for row in ending
                if row.run.cluster == name
            ]
            if mine:
                others = [one for row in ending if row.run.cluster == name for one in row.state.others]
                with held_back():
                    under_way += (run.run_id for run in mine)
                    end_runs(cluster, transport, ledger, mine, others)
                    ended += under_way
                    under_way.clear()
    forget_ended(settings.project_dir / ".clusterkit", ledger.runs())
    result.done = rows
    return result


def _what_came(under_way: Sequence[str], ended: Sequence[str]) -> InterruptedChange:
    """Returns what an interrupted command has cancelled."""
    if under_way:
        words = f"whether {', '.join(under_way)} had been cancelled is not known"
        return InterruptedChange(words, "`clusterkit status` tells; the same command may be repeated")
    return InterruptedChange(f"{', '.join(ended)} cancelled" if ended else "nothing was cancelled")


def choose(
    ledger: Ledger, names: Sequence[str], *, group: str | None, everything: bool, cluster: str | None
) -> list[LedgerRun]:
    """Returns the runs to cancel.

    Args:
        ledger: of the project.
        names: runs, as `Ledger.find` takes them.
        group: all runs of one group that may still run; a unique prefix is enough.
        everything: all runs of this project that may still run.
        cluster: with `everything`, only those of one cluster.

    Raises:
        ConfigError: no runs were chosen, or they were chosen in two ways at once.
        RunError: a name or group matches nothing.
    """
    if sum((bool(names), everything, group is not None)) > 1:
        raise ConfigError("runs, --group and --all exclude each other", hint="use one of them")
    if group is not None:
        return _group(ledger, group)
    if everything:
        return [run for run in ledger.runs(cluster=cluster) if run.state in _MAY_GO_ON]
    if not names:
        raise ConfigError(
            "which run should be cancelled?",
            hint="name the runs, or use --all; `clusterkit status` lists them",
        )
    return list(dict.fromkeys(ledger.find(names)))


def _group(ledger: Ledger, wanted: str) -> list[LedgerRun]:
    """Returns the runs of a group that may still run."""
    runs = [run for run in ledger.runs() if wanted and in_group(run, wanted)]
    groups = dict.fromkeys(run.group for run in runs)
    if len(groups) != 1:
        several = f"{wanted!r} matches the groups {', '.join(groups)}" if groups else None
        raise RunError(
            several or f"no group {wanted!r} is known in this project",
            hint="`clusterkit status` shows the runs with their groups",
        )
    return [run for run in runs if run.state in _MAY_GO_ON]


def had_ended(row: StatusRow) -> bool:
    """Returns whether a run had ended before it was to be cancelled."""
    was = row.state.state
    return not was.active and was is not JobState.UNKNOWN
