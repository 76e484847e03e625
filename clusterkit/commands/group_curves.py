"""watch, of a group: what each of its runs has learned so far; one connection a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING

from clusterkit.backends.base import JobState
from clusterkit.commands.curves import (
    ASK_SECONDS,
    LOCAL_SECONDS,
    LOOK_SECONDS,
    Curves,
    Metrics,
    how_it_ended,
    synced,
)
from clusterkit.commands.log_source import LogSource
from clusterkit.errors import SchedulerError
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.observe import query
from clusterkit.runs.selection import known_state
from clusterkit.runs.state import RunState
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.transport.base import Transport


def group_curves(
    settings: Settings, runs: Sequence[LedgerRun], *, follow: bool, say: Callable[[str], None]
) -> Iterator[tuple[Curves, ...]]:
    """Looks at the metrics of several runs, until all have ended if they are to be followed.

    Args:
        settings: of the project.
        runs: which; the looks have their order.
        follow: look again and again.
        say: told when the network is waited for.

    Raises:
        TransportError, ConfigError: a cluster cannot be reached, or is not configured any more.
    """
    here = {run.run_id: look for run in runs if (look := _copy(settings, run)) is not None}
    going = [run for run in runs if run.run_id not in here]
    local = all(settings.cluster(run.cluster).here for run in going)
    with ExitStack() as stack:
        transport_to = cache(lambda name: stack.enter_context(connected(settings.cluster(name))))
        sources = [LogSource(transport_to(run.cluster), run, "log", patient=follow, say=say) for run in going]
        metrics = [Metrics(source) for source in sources]
        states = {run.run_id: known_state(run) for run in going}
        asked = float("-inf")
        while True:
            if local or time.monotonic() - asked >= ASK_SECONDS:
                states |= _states(settings, going, transport_to)
                asked = time.monotonic()
            for one in metrics:  # after the question: of a run that has ended it reads all there is
                one.read()
            looks = here | {
                run.run_id: Curves(run, states[run.run_id], tuple(one.rows))
                for run, one in zip(going, metrics, strict=True)
            }
            yield tuple(looks[run.run_id] for run in runs)
            if not follow or not any(_may_go_on(state) for state in states.values()):
                return
            time.sleep(LOCAL_SECONDS if local else LOOK_SECONDS)


def _copy(settings: Settings, run: LedgerRun) -> Curves | None:
    """The copy here of a run that had ended when it was synced."""
    copy = settings.project.results / run.run_id / "metrics.jsonl"
    ended = how_it_ended(run, copy.parent) if copy.is_file() else None
    return None if ended is None else synced(run, copy, ended)


def _states(
    settings: Settings, runs: Sequence[LedgerRun], transport_to: Callable[[str], Transport]
) -> dict[str, RunState]:
    found: dict[str, RunState] = {}
    for name in dict.fromkeys(run.cluster for run in runs):
        mine = [run for run in runs if run.cluster == name]
        with suppress(SchedulerError):  # it says so of itself soon enough; the metrics are there
            states = query(settings.cluster(name), transport_to(name), mine)
            found |= {run.run_id: state for run, state in zip(mine, states, strict=True)}
    return found


def _may_go_on(state: RunState) -> bool:
    return state.state.active or state.state is JobState.UNKNOWN
