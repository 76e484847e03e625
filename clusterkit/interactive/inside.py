"""Runs commands inside the allocation of a running run, for `shell` and `top`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.jobs import JobState
from clusterkit.errors import RunError, last_words
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.observe import query
from clusterkit.runs.state import RunState
from clusterkit.site import connected
from clusterkit.transport.base import Transport

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings


_SIGNALLED, _LAST_SIGNAL = 128, 64
"""The exit status after a signal is their sum, at most."""
_TRY_SECONDS = 120.0
"""srun itself gives a node up after some ten."""


class EndedError(RunError):
    """A run is not running and never will be."""


@dataclass(frozen=True)
class Inside:
    """A running run and the connection to its cluster."""

    run: LedgerRun
    state: RunState
    cluster: Cluster
    transport: Transport

    @property
    def attempt(self) -> int:
        """Number of the running attempt."""
        return self.state.attempt or 0

    @property
    def job_id(self) -> str:
        """The scheduler's job id."""
        return self.state.job_id or self.run.job_id

    @property
    def hold_input(self) -> bool:
        """Whether the command from `argv`, without a terminal, ends when its standard input closes."""
        return backend_of(self.cluster).can.steps

    def argv(self, argv: Sequence[str], *, terminal: bool = False, reads: bool = False) -> list[str]:
        """Returns the command for the login node that runs `argv` beside the program; see `inside_argv`."""
        return backend_of(self.cluster).inside_argv(self.job_id, argv, terminal=terminal, reads=reads)


@contextmanager
def inside(settings: Settings, run: LedgerRun) -> Iterator[Inside]:
    """Logs in and checks that the run is running.

    Raises:
        RunError: it is not running.
        TransportError: the cluster cannot be reached.
    """
    cluster = settings.cluster(run.cluster)
    with connected(cluster) as transport:
        (state,) = query(cluster, transport, [run])
        if state.state is not JobState.RUNNING or state.attempt is None:
            raise _not_running(run, state)
        yield Inside(run, state, cluster, transport)


@contextmanager
def inside_all(settings: Settings, runs: Sequence[LedgerRun]) -> Iterator[list[Inside]]:
    """Logs in to each cluster once and finds the running runs.

    Raises:
        RunError: no run is running.
        TransportError: a cluster cannot be reached.
    """
    places: list[Inside] = []
    states: Counter[str] = Counter()
    with ExitStack() as stack:
        for name in dict.fromkeys(run.cluster for run in runs):
            cluster, mine = settings.cluster(name), [run for run in runs if run.cluster == name]
            transport = stack.enter_context(connected(cluster))
            for run, state in zip(mine, query(cluster, transport, mine), strict=True):
                states[state.state] += 1
                if state.state is JobState.RUNNING and state.attempt is not None:
                    places.append(Inside(run, state, cluster, transport))
        if not places:
            counts = ", ".join(f"{count} {state}" for state, count in states.items())
            raise RunError(
                f"none of the {len(runs)} runs of {runs[0].group} is running: {counts}",
                hint=f"`clusterkit status {runs[0].group}` shows them",
            )
        yield places


def why_it_broke_off(place: Inside, status: int) -> RunError | None:
    """Returns what has happened to a run, or to its node, if that ended a command inside it; else None.

    Args:
        place: where the command ran.
        status: its exit status.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    if 0 <= status <= _SIGNALLED:
        return None
    (state,) = query(place.cluster, place.transport, [place.run])
    if state.state is not JobState.RUNNING or state.attempt != place.attempt:
        return _not_running(place.run, state)
    if status <= _SIGNALLED + _LAST_SIGNAL:
        return None
    tried = place.transport.run(place.argv(["true"], reads=True), check=False, timeout=_TRY_SECONDS)
    if tried.returncode == 0:
        return None  # so the status is the command's own
    node = place.state.node or "the node"
    return RunError(
        f"{node}, where {place.run.run_id} runs, does not answer: {last_words(tried.error_text)}",
        hint=f"`clusterkit why {place.run.run_id}` looks for the cause",
    )


def _not_running(run: LedgerRun, state: RunState) -> RunError:
    why = f": {state.why}" if state.why else ""
    if state.state is JobState.RUNNING:
        return RunError(f"{run.run_id} is just starting", hint="try again in a few seconds")
    if state.state.active or state.state is JobState.UNKNOWN:
        return RunError(
            f"{run.run_id} is not running, it is {state.state}{why}",
            hint=f"`clusterkit logs -f {run.run_id}` waits for it",
        )
    return EndedError(
        f"{run.run_id} has ended as {state.state}{why}",
        hint=f"`clusterkit logs {run.run_id}` shows its output",
    )
