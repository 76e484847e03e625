"""logs: print a run's log, and follow it from attempt to attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ConfigError, RunError, TransportError
from clusterkit.results.synced_logs import last_lines, synced_logs
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.log_source import SCHEDULER, LogSource, Look, Wanted
from clusterkit.runs.observe import query
from clusterkit.runs.record import Attempt
from clusterkit.runs.state import RunState
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

_LOOK_SECONDS = 2.0
"""Seconds between two looks at the run directory while there is nothing to print."""
_ASK_SECONDS = (3.0, 30.0)
"""Seconds between two scheduler queries: at first, and at most after doubling. Local queries are free."""


def logs(
    settings: Settings, run: LedgerRun, wanted: Wanted, *, say: Callable[[str], None] = lambda _: None
) -> Iterator[bytes]:
    """Stream a run's log, unchanged, in chunks.

    Args:
        settings: of the project.
        run: whose log to read.
        wanted: the part of its log.
        say: called, between chunks, with messages about what they are or why there are none.

    Raises:
        ConfigError: both one attempt and all attempts are wanted, or the cluster is no longer configured and
            the run was not synced.
        RunError: there is no log yet, no such attempt, or no run directory.
        TransportError: the cluster cannot be reached, and the run was not synced.
    """
    if wanted.everything and wanted.attempt is not None:
        raise ConfigError("--attempt and --all exclude each other", hint="leave one of them out")
    if wanted.stderr and wanted.rank:
        raise ConfigError("--stderr is rank 0's, whose errors alone have a file", hint="leave out --rank")
    with ExitStack() as stack:
        try:
            cluster = settings.cluster(run.cluster)
            transport = stack.enter_context(connected(cluster))
            source = LogSource(transport, run, wanted.file, patient=wanted.follow, say=say)
            look = source.look()
        except (TransportError, ConfigError) as error:
            yield from synced_logs(settings.project.results, run, wanted, silence=error, say=say)
            return
        if not look.record.exists:
            raise _no_directory(run, transport.where)
        yield from _Teller(cluster, source, wanted, settings.project.results, say).tell(look)


class _Teller:
    """Decides which part of the log to print next."""

    def __init__(
        self, cluster: Cluster, source: LogSource, wanted: Wanted, results: Path, say: Callable[[str], None]
    ) -> None:
        self._results = results
        self._cluster, self._source, self._wanted, self._say = cluster, source, wanted, say
        self._said = ""
        self._pause = self._asked = 0.0

    def tell(self, look: Look) -> Iterator[bytes]:
        """Yields the whole wanted part."""
        wanted, numbers = self._wanted, look.numbers
        if wanted.attempt is not None and wanted.attempt not in numbers:
            some = f"it has {_listed(numbers)}" if numbers else "it has not started yet"
            raise RunError(f"{self._source.run.run_id}: there is no attempt {wanted.attempt}; {some}")
        if not numbers and not wanted.follow:
            yield from self._nothing_yet(look)
            return
        if wanted.attempt is not None:
            numbers = [wanted.attempt]
        elif not wanted.everything:
            numbers = numbers[-1:]
        at: int | None = None
        for at in numbers:
            if len(numbers) > 1:
                self._say(f"attempt {at}{_place(look.attempt(at))}")
            self._source.offset = None
            if at not in look.sizes and _over(look, at):
                yield from self._gone(at)
            yield from self._print(at, look, wanted.lines)
        if wanted.follow:
            yield from self._follow(at)

    def _print(self, at: int, look: Look, lines: int | None) -> Iterator[bytes]:
        """Yields what one attempt has logged so far."""
        while at in look.sizes and (self._source.offset is None or self._source.offset < look.sizes[at]):
            yield from self._source.stream(at, lines=lines, follow=False)

    def _gone(self, at: int) -> Iterator[bytes]:
        """Handles a missing log: it was removed by `storage clean`, or left behind when the run moved."""
        run, name = self._source.run, self._wanted.file
        copy = self._results / run.run_id / "attempts" / str(at) / name
        if copy.is_file():
            self._say(f"the {name} of attempt {at} is no longer on {run.cluster}; this is the synced copy")
            yield from last_lines(copy, self._wanted.lines)
        elif self._wanted.rank:
            self._say(
                f"attempt {at} has no log of rank {self._wanted.rank}: it ran on fewer nodes, or one node "
                "has several ranks and its log is that of the first"
            )
        elif self._wanted.stderr:
            self._say(f"attempt {at} has no separate standard error")
        else:
            self._say(f"the log of attempt {at} is no longer on {run.cluster} and was not synced")

    def _follow(self, at: int | None) -> Iterator[bytes]:
        """Yields everything from now on; `at` is the attempt that was printed so far."""
        look = self._source.look()
        while True:
            if at is not None:
                yield from self._watch(at, look)
                look = self._source.look()
                yield from self._print(at, look, None)  # the rest after the stream ended
                if self._wanted.attempt is not None and _over(look, at):
                    return
            if (following := _next(look, at)) is not None:
                if at is not None:
                    self._say(_between(look.attempt(at), look.attempt(following)))
                at, self._source.offset = following, 0
                self._pause, self._said = 0.0, ""
                continue
            if at is not None and (look.attempt(at).exit or {}).get("why") == "completed":
                return
            state = self._state()
            if state is not None and not (state.state.active or state.state is JobState.UNKNOWN):
                yield from self._last_words(state, look)
                return
            if at is None or _over(look, at) or at not in look.sizes:
                time.sleep(0.2 if self._cluster.here else _LOOK_SECONDS)
                look = self._source.look()

    def _watch(self, at: int, look: Look) -> Iterator[bytes]:
        """Yields an attempt's log until it has ended or pauses for a while."""
        if at in look.sizes and not _over(look, at):
            yield from self._source.stream(at, lines=None, follow=True)

    def _state(self) -> RunState | None:
        """The run's state, reported unless running; None if the scheduler was queried recently."""
        now = time.monotonic()
        if now - self._asked < self._pause:
            return None
        if not self._cluster.here:
            first, most = _ASK_SECONDS
            self._pause = min(most, self._pause * 2 or first)
        source = self._source
        (state,) = source.patiently(lambda: query(self._cluster, source.transport, [source.run]))
        self._asked = time.monotonic()
        if state.state is not JobState.RUNNING:
            words = f"{source.run.run_id} is {state.state}" + (f": {state.why}" if state.why else "")
            if words != self._said:
                self._say(words)
                self._said = words
        return state

    def _last_words(self, state: RunState, look: Look) -> Iterator[bytes]:
        """Yields the scheduler's log of a run that never started, as only that may show how it ended."""
        if state.attempt is None and SCHEDULER in look.sizes:
            self._source.offset = None
            yield from self._source.stream(SCHEDULER, lines=self._wanted.lines, follow=False)

    def _nothing_yet(self, look: Look) -> Iterator[bytes]:
        """Yields the scheduler's log of a run that has not started; raises RunError without one."""
        run = self._source.run
        if look.sizes.get(SCHEDULER):
            self._say("no attempt has started; this is the scheduler's output")
            yield from self._source.stream(SCHEDULER, lines=self._wanted.lines, follow=False)
            return
        (state,) = query(self._cluster, self._source.transport, [run])
        why = f": {state.why}" if state.why else ""
        raise RunError(
            f"{run.run_id} has not started; it is {state.state}{why}",
            hint=f"`clusterkit logs -f {run.run_id}` waits for it" if state.state.active else None,
        )


def _no_directory(run: LedgerRun, where: str) -> RunError:
    if run.state in (JobState.SUBMITTING, JobState.NOT_SUBMITTED):
        return RunError(
            f"{run.run_id}: there is no run directory on {where}: its submission was interrupted",
            hint=f"`clusterkit status {run.run_id}` finds out what happened to it",
        )
    return RunError(
        f"{run.run_id}: its run directory is gone from {where}",
        hint="if it was synced, its logs are in the results folder",
    )


def _next(look: Look, at: int | None) -> int | None:
    """The attempt after `at`; the newest if `at` is None."""
    if at is None:
        return look.numbers[-1] if look.numbers else None
    return next((number for number in look.numbers if number > at), None)


def _over(look: Look, at: int) -> bool:
    return look.attempt(at).exit is not None or _next(look, at) is not None


def _between(last: Attempt, following: Attempt) -> str:
    return (
        f"attempt {last.number}{_place(last)} ended: {_end(last)}; "
        f"attempt {following.number}{_place(following)} continues"
    )


def _place(attempt: Attempt) -> str:
    node = (attempt.start or {}).get("node")
    return f" on {node}" if node else ""


def _end(attempt: Attempt) -> str:
    """A readable reason why an attempt ended."""
    if attempt.exit is None:
        return "its node failed, or the whole job was killed at once"
    why, code, signal = (attempt.exit.get(key) for key in ("why", "code", "signal"))
    if why == "requeue":
        return f"it checkpointed after SIG{signal}" if signal else "it checkpointed"
    if why == "timeout":
        return "it reached its time limit"
    if why == "signalled":
        return f"SIG{signal} ended it"
    if why == "container":
        return str(attempt.exit.get("detail") or "its container did not start")
    return "it completed" if why == "completed" else f"exit code {code}"


def _listed(numbers: list[int]) -> str:
    return f"attempts {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"attempt {numbers[0]}"
