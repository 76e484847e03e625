"""curves: read what runs log, as they log it, from their clusters or from the synced copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ConfigError, RunError, SchedulerError, TransportError
from clusterkit.results.growing import GrowingRun, read_logs
from clusterkit.results.logs.run_logs import RunLogs, read_run
from clusterkit.results.metrics import MetricRow
from clusterkit.runs.log_source import LogSource
from clusterkit.runs.observe import query
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.runs.selection import known_state
from clusterkit.runs.state import RunState
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import LedgerRun
    from clusterkit.transport.base import Bar

LOOK_SECONDS = 5.0
"""Seconds between two reads of the metrics of a run on a remote cluster."""
LOCAL_SECONDS = 1.0
ASK_SECONDS = 30.0
"""Seconds between two queries of a remote scheduler."""


@dataclass(frozen=True)
class Curves:
    """A run's state and metrics at one moment."""

    run: LedgerRun
    state: RunState
    rows: tuple[MetricRow, ...]
    """All rows of its logs so far."""
    synced: datetime | None = None
    """When the synced copy was last written; None if the rows come from the cluster."""
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why log files, by path, are not read to their end."""

    @property
    def over(self) -> bool:
        """Whether nothing more will come."""
        return self.state.state is not JobState.UNKNOWN and not self.state.state.active

    @property
    def total_steps(self) -> int | None:
        """Environment steps that the run aims for."""
        totals = [row.number("total_steps") for row in self.rows if row.kind == "run"]
        return next((int(total) for total in reversed(totals) if total), None)


def curves_of(
    settings: Settings,
    runs: Sequence[LedgerRun],
    *,
    follow: bool,
    bar: Bar,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Curves, ...]]:
    """Iterates over the metrics of runs, until all have ended if `follow` is set, over one connection.

    Of a run that had ended when it was synced, the local copy is read without a connection.

    Args:
        settings: of the project.
        runs: to watch; each item has their order.
        follow: read repeatedly until all runs have ended.
        bar: opens progress bars.
        say: called with messages about network delays, and about why only the synced copy is shown.

    Raises:
        TransportError, ConfigError: a cluster cannot be reached, or is no longer configured, and a run was
            not synced.
    """
    try:
        yield from _looks(settings, runs, follow=follow, bar=bar, say=say)
    except (TransportError, ConfigError) as error:
        copies = [settings.project.results / run.run_id for run in runs]
        if not all((copy / "run.json").is_file() for copy in copies):
            raise
        say(f"{error.cause}; this is the synced copy")
        yield tuple(
            synced(settings, run, copy, known_state(run)) for run, copy in zip(runs, copies, strict=True)
        )


def synced(settings: Settings, run: LedgerRun, copy: Path, state: RunState) -> Curves:
    """Returns a run's metrics from its synced copy."""
    logs = read_run(copy, own=not run.recipe, step=settings.project.step)
    written = max((copy / path).stat().st_mtime for path in ("run.json", *logs.paths))
    return Curves(run, state, logs.rows, datetime.fromtimestamp(written).astimezone(), logs.faults)


def how_it_ended(run: LedgerRun, copy: Path) -> RunState | None:
    """Returns the final state of a run that had ended when synced, and was not resumed since; else None."""
    try:
        here = read_run_dir(copy)
    except RunError:
        return None
    if not here.ended or (here.attempts[-1].start or {}).get("submission", 0) != run.submission:
        return None
    last = here.attempts[-1].exit or {}
    stopped = here.stopped is not None or here.attempts[-1].cancel is not None
    if run.until_done and last.get("why") in ("timeout", "signalled") and not stopped:
        return None  # it may have been resumed
    known = known_state(run)
    if known.final:
        return known
    return RunState(JobState.COMPLETED if last.get("why") == "completed" else JobState.FAILED)


def _looks(
    settings: Settings, runs: Sequence[LedgerRun], *, follow: bool, bar: Bar, say: Callable[[str], None]
) -> Iterator[tuple[Curves, ...]]:
    here = {run.run_id: look for run in runs if (look := _copy_here(settings, run)) is not None}
    going = [run for run in runs if run.run_id not in here]
    local = all(settings.cluster(run.cluster).here for run in going)
    with ExitStack() as stack:
        transport_to = cache(lambda name: stack.enter_context(connected(settings.cluster(name))))
        sources = [LogSource(transport_to(run.cluster), run, "log", patient=follow, say=say) for run in going]
        logs = {run.run_id: RunLogs(settings.project.step) for run in going}
        readers = {run.run_id: GrowingRun(run.run_dir, logs[run.run_id], own=not run.recipe) for run in going}
        states = {run.run_id: known_state(run) for run in going}
        asked = looked = float("-inf")
        first = True
        while True:
            with bar(f"metrics of {len(going):,} runs", None) if first and going else nullcontext():
                before = dict(states)
                if local or time.monotonic() - asked >= ASK_SECONDS:
                    states |= _states(settings, sources)
                    asked = time.monotonic()
                find = time.monotonic() - looked >= (LOOK_SECONDS if local else ASK_SECONDS)
                find = find or any(states[name].final and not before[name].final for name in states)
                looked = time.monotonic() if find else looked
                for mine in _by_cluster(sources):  # after the query: those of an ended run are complete
                    some = [readers[source.run.run_id] for source in mine]
                    mine[0].patiently(partial(read_logs, mine[0].transport, some, find=find))
            first = False
            looks = here | {
                run.run_id: Curves(
                    run, states[run.run_id], logs[run.run_id].rows, faults=dict(logs[run.run_id].faults)
                )
                for run in going
            }
            yield tuple(looks[run.run_id] for run in runs)
            if not follow or not any(_may_go_on(state) for state in states.values()):
                return
            time.sleep(LOCAL_SECONDS if local else LOOK_SECONDS)


def _copy_here(settings: Settings, run: LedgerRun) -> Curves | None:
    """Returns the synced copy of a run that had already ended when it was synced; None otherwise."""
    copy = settings.project.results / run.run_id
    ended = how_it_ended(run, copy) if (copy / "run.json").is_file() else None
    return None if ended is None else synced(settings, run, copy, ended)


def _by_cluster(sources: Sequence[LogSource]) -> list[list[LogSource]]:
    """Returns the sources of each cluster."""
    names = dict.fromkeys(source.run.cluster for source in sources)
    return [[source for source in sources if source.run.cluster == name] for name in names]


def _states(settings: Settings, sources: Sequence[LogSource]) -> dict[str, RunState]:
    """Queries the states of the sources' runs, cluster by cluster."""
    found: dict[str, RunState] = {}
    for mine in _by_cluster(sources):
        cluster, runs = settings.cluster(mine[0].run.cluster), [source.run for source in mine]
        with suppress(SchedulerError):  # the metrics can be read without the scheduler
            states = mine[0].patiently(partial(query, cluster, mine[0].transport, runs))
            found |= {run.run_id: state for run, state in zip(runs, states, strict=True)}
    return found


def _may_go_on(state: RunState) -> bool:
    return state.state.active or state.state is JobState.UNKNOWN
