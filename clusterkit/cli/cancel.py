"""`clusterkit cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import agree, at_terminal
from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.ui.console import err, note, print_document, say, transfer_bar, warn
from clusterkit.cli.ui.status import status_table
from clusterkit.errors import ConfigError, RunError, SchedulerError, TransportError
from clusterkit.interruption import InterruptedChange, held_back, tell
from clusterkit.project import load, open_ledger
from clusterkit.site import connected
from clusterkit.units import plural

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger, LedgerRun
    from clusterkit.runs.status import StatusRow
    from clusterkit.transport.base import Transport


def cancel(
    names: options.Runs = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="All runs of a group, such as a sweep."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All runs of this project that may still run.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", metavar="NAME", help="With --all: only runs on this cluster."),
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Cancel runs; what they have written stays.

    On a terminal it asks first if several runs, or a running one, would be cancelled.

    Examples:
      # asks first if the run is running
      clusterkit cancel last
      # all runs of a sweep
      clusterkit cancel --group mt10-20260102-030405-k3f9 --yes
      # all runs of this project on that cluster
      clusterkit cancel --all --cluster uni

    See also: clusterkit resume, clusterkit status
    """
    settings = load(config)
    together = everything or group is not None
    with open_ledger(settings, of=names or ()) as ledger:
        runs = choose(ledger, names or (), group=group, everything=everything, cluster=cluster)
        if everything and cluster is not None:
            settings.cluster(cluster)  # raises for an unknown name
        result = cancel_runs(settings, ledger, runs, together=together, yes=yes)
    raise typer.Exit(show_cancelled(result, as_json=as_json))


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


def cancel_runs(
    settings: Settings, ledger: Ledger, runs: Sequence[LedgerRun], *, together: bool, yes: bool
) -> Cancellation:
    """Cancels runs that have not ended.

    The record is written before the scheduler cancels the job, so that no run resumes by itself afterwards.

    Args:
        settings: of the project.
        ledger: of the project.
        runs: to cancel.
        together: whether they were chosen together, not named one by one.
        yes: do not ask.

    Raises:
        ConfigError: there is no terminal to ask on.
        SchedulerError: the scheduler refused.
    """
    from clusterkit.interactive.ssh_keys import forget_ended
    from clusterkit.runs.ending import end_runs
    from clusterkit.runs.observe import query
    from clusterkit.runs.status import StatusRow

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
                with transfer_bar(f"{len(mine):,} runs on {name}", None):
                    mine = _settled(cluster, transport, ledger, mine)
                    states = query(cluster, transport, mine)
            except (TransportError, ConfigError) as error:
                result.silent[name] = error.cause
                continue
            open_to[name] = cluster, transport
            rows += [StatusRow(run, state) for run, state in zip(mine, states, strict=True)]
        result.unclear = [row.run for row in rows if row.state.state is JobState.SUBMITTING]
        rows = [row for row in rows if row.run not in result.unclear]
        ending = [row for row in rows if _may_run(row.state.state)]
        result.refused = bool(ending) and not agreed(ending, together=together, yes=yes)
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
    result.done = ending if together else rows
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
    known = ledger.runs()
    names = dict.fromkeys(run.group for run in known if run.group)
    matches = [wanted] if wanted in names else [name for name in names if wanted and name.startswith(wanted)]
    if len(matches) != 1:
        several = f"{wanted!r} matches the groups {', '.join(matches)}" if matches else None
        raise RunError(
            several or f"no group {wanted!r} is known in this project",
            hint=f"groups: {', '.join(names)}" if names else "no runs were submitted together here yet",
        )
    return [run for run in known if run.group == matches[0] and run.state in _MAY_GO_ON]


def _settled(
    cluster: Cluster, transport: Transport, ledger: Ledger, runs: Sequence[LedgerRun]
) -> list[LedgerRun]:
    """Returns the runs, updated from the cluster if their submission was interrupted."""
    from clusterkit.runs.settling import settle

    unclear = [run for run in runs if run.state == JobState.SUBMITTING]
    if unclear:
        settle(cluster, transport, ledger, unclear)
    return [ledger.get(run.run_id) or run for run in runs]


def _may_run(state: JobState) -> bool:
    return state.active or state is JobState.UNKNOWN


def print_json(result: Cancellation) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "carried_out": not result.refused,
            "runs": [
                {
                    "run_id": row.run.run_id,
                    "cluster": row.run.cluster,
                    "state_before": row.state.state.value,
                    "cancelled": not _had_ended(row),
                }
                for row in result.done
            ],
            "unclear": [run.run_id for run in result.unclear],
            "silent": result.silent,
        }
    )


def _had_ended(row: StatusRow) -> bool:
    was = row.state.state
    return not was.active and was is not JobState.UNKNOWN


def agreed(rows: Sequence[StatusRow], *, together: bool, yes: bool) -> bool:
    """Shows the runs to be cancelled and asks, except for a single pending run.

    Without a terminal, runs given by name are cancelled without asking; `--all` and `--group` need `--yes`.
    """
    terminal = at_terminal()
    if yes or (not together and not terminal):
        return True
    if not terminal:
        raise ConfigError(
            f"this would cancel {plural(len(rows), 'run')}, and there is no terminal to ask on",
            hint="use --yes",
        )
    if len(rows) == 1 and rows[0].state.state is not JobState.RUNNING:
        return True
    err.print(status_table(rows, width=err.width)[0])
    what = "this run" if len(rows) == 1 else f"these {len(rows)} runs"
    return agree(f"Cancel {what}?")


def show_cancelled(result: Cancellation, *, as_json: bool = False) -> int:
    """Prints one line per run, or a JSON object; returns the command's exit code."""
    if as_json:
        print_json(result)
    for row in () if as_json else result.done:
        had_ended = f"had ended already ({row.state.state})"
        say(f"{row.run.run_id}  {had_ended if _had_ended(row) else 'cancelled'}")
    for cluster, cause in result.silent.items():
        warn(f"{cluster} gives no answer, its runs continue:", f" {cause}")
    for run in result.unclear:
        warn(f"{run.run_id} is still being submitted:", " try again in a minute")
    if result.refused:
        note("nothing was cancelled")
    elif not (result.done or result.silent or result.unclear):
        note("no run of this project is waiting or running")
    if result.silent:
        return TransportError.exit_code
    return SchedulerError.exit_code if result.unclear else 0
