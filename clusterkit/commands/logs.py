"""logs: print a run's log, and follow it from attempt to attempt."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.errors import ClusterkitError, ConfigError, RunError, TransportError
from clusterkit.results.synced_logs import last_lines, synced_logs
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.log_source import (
    SCHEDULER,
    LogSource,
    Look,
    Wanted,
    log_path,
    look_all,
)
from clusterkit.runs.observe import query
from clusterkit.runs.pieces import Piece, read_pieces
from clusterkit.runs.record import Attempt
from clusterkit.runs.state import RunState
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.transport.base import Bar, Transport

_LOOK_SECONDS = 2.0
"""Seconds between two looks at the run directory while there is nothing to print."""
_ASK_SECONDS = (3.0, 30.0)
"""Seconds between two scheduler queries: at first, and at most after doubling. Local queries are free."""


def logs(
    settings: Settings,
    runs: Sequence[LedgerRun],
    wanted: Wanted,
    *,
    bar: Bar,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[LedgerRun, bytes]]:
    """Streams the logs of runs, unchanged, in chunks, with one login and a few round trips to each cluster.

    Args:
        settings: of the project.
        runs: whose logs to read; a single one if they are followed.
        wanted: the part of their logs.
        bar: opens progress bars.
        say: called, between chunks, with messages about what they are or why there are none.

    Yields:
        A run and bytes of its log; first no bytes of each. Clusters come one after the other.

    Raises:
        ConfigError: both one attempt and all attempts are wanted, or the cluster is no longer configured and
            the run was not synced.
        RunError: there is no log yet, no such attempt, or no run directory. Of several runs, `say` is told.
        TransportError: the cluster cannot be reached, and the run was not synced.
    """
    if wanted.everything and wanted.attempt is not None:
        raise ConfigError("--attempt and --all exclude each other", hint="leave one of them out")
    if wanted.stderr and wanted.rank:
        raise ConfigError("--stderr is rank 0's, whose errors alone have a file", hint="leave out --rank")
    for name in dict.fromkeys(run.cluster for run in runs):
        mine = [run for run in runs if run.cluster == name]
        with ExitStack() as stack:
            try:
                cluster = settings.cluster(name)
                transport = stack.enter_context(connected(cluster))
                source = LogSource(transport, mine[0], wanted.file, patient=wanted.follow, say=say)
                if len(mine) == 1:
                    looks = [source.look()]
                else:
                    with bar(f"logs of {len(mine):,} runs on {name}", None):
                        looks = look_all(transport, mine, wanted.file)
            except (TransportError, ConfigError) as error:
                yield from _here(settings, mine, wanted, error, say, alone=len(runs) == 1)
                continue
            results, alone = settings.project.results, len(runs) == 1
            printer = _LogReader(cluster, transport, mine, looks, wanted, results, say, alone=alone)
            yield from printer.print()
            if wanted.follow:
                at = wanted.attempt if wanted.attempt is not None else _next(looks[0], None)
                source.offset = printer.offsets.get(at)
                follower = _LogFollower(cluster, source, wanted, say)
                yield from ((mine[0], data) for data in follower.follow(at))


def _here(
    settings: Settings,
    runs: Sequence[LedgerRun],
    wanted: Wanted,
    silence: ClusterkitError,
    say: Callable[[str], None],
    *,
    alone: bool,
) -> Iterator[tuple[LedgerRun, bytes]]:
    """Yields the synced copies of a cluster's runs, as it does not answer."""
    for run in runs:
        yield run, b""
        try:
            copy = synced_logs(settings.project.results, run, wanted, silence=silence, say=say)
            yield from ((run, data) for data in copy)
        except ClusterkitError as error:
            if alone:
                raise
            say(error.cause)


@dataclass(frozen=True)
class _LogPart:
    """A part of what is printed of a run: a message, then a log."""

    said: str = ""
    attempt: int | None = None
    """Whose log on the cluster; SCHEDULER for the scheduler's; None for none."""
    copy: Path | None = None
    """The synced copy, in place of it."""


class _LogReader:
    """Prints what runs of one cluster have logged so far: first decides what, then reads it at once."""

    def __init__(
        self,
        cluster: Cluster,
        transport: Transport,
        runs: Sequence[LedgerRun],
        looks: Sequence[Look],
        wanted: Wanted,
        results: Path,
        say: Callable[[str], None],
        *,
        alone: bool,
    ) -> None:
        self._cluster, self._transport, self._wanted, self._results = cluster, transport, wanted, results
        self._runs, self._looks, self._say, self._alone = runs, looks, say, alone
        self.offsets: dict[int | None, int] = {}
        """Of the last run, the end of what was printed of each attempt, bytes."""

    def print(self) -> Iterator[tuple[LedgerRun, bytes]]:
        """Yields the wanted part of each run's log.

        Raises:
            RunError: a run that is alone has no log.
            TransportError: the cluster did not answer.
        """
        rows = list(zip(self._runs, self._looks, strict=True))
        silent = [run for run, look in rows if look.record.exists and not self._has_log(look)]
        states = (
            dict(zip(silent, query(self._cluster, self._transport, silent), strict=True)) if silent else {}
        )
        parts: list[list[_LogPart] | RunError] = []
        for run, look in rows:
            try:
                parts.append(self._parts(run, look, states.get(run)))
            except RunError as error:
                if self._alone:
                    raise
                parts.append(error)
        pieces = [
            Piece(log_path(run, part.attempt, self._wanted.file), lines=self._wanted.lines)
            for run, mine in zip(self._runs, parts, strict=True)
            if not isinstance(mine, RunError)
            for part in mine
            if part.attempt is not None
        ]
        chunks = groupby(read_pieces(self._transport, pieces), key=lambda chunk: chunk.number)
        for run, mine in zip(self._runs, parts, strict=True):
            yield run, b""
            if isinstance(mine, RunError):
                self._say(mine.cause)
                continue
            for part in mine:
                if part.said:
                    self._say(part.said)
                if part.attempt is not None:
                    for chunk in next(chunks)[1]:
                        self.offsets[part.attempt] = chunk.offset
                        yield run, chunk.data
                elif part.copy is not None:
                    yield from ((run, data) for data in last_lines(part.copy, self._wanted.lines))

    def _has_log(self, look: Look) -> bool:
        return bool(look.numbers or look.sizes.get(SCHEDULER) or self._wanted.follow)

    def _parts(self, run: LedgerRun, look: Look, state: RunState | None) -> list[_LogPart]:
        """Returns what to print of a run; `state` is known if it has no log."""
        wanted, numbers = self._wanted, look.numbers
        if not look.record.exists:
            raise _no_directory(run, self._transport.where)
        if wanted.attempt is not None and wanted.attempt not in numbers:
            some = f"it has {_listed(numbers)}" if numbers else "it has not started yet"
            raise RunError(f"{run.run_id}: there is no attempt {wanted.attempt}; {some}")
        if state is not None:
            why = f": {state.why}" if state.why else ""
            raise RunError(
                f"{run.run_id} has not started; it is {state.state}{why}",
                hint=f"`clusterkit logs -f {run.run_id}` waits for it" if state.state.active else None,
            )
        if not numbers:
            waits = wanted.follow or not look.sizes.get(SCHEDULER)
            said = "no attempt has started; this is the scheduler's output"
            return [] if waits else [_LogPart(said, SCHEDULER)]
        if wanted.attempt is not None:
            numbers = [wanted.attempt]
        elif not wanted.everything:
            numbers = numbers[-1:]
        parts = []
        for number in numbers:
            if len(numbers) > 1:
                parts.append(_LogPart(f"attempt {number}{_place(look.attempt(number))}"))
            if number in look.sizes:
                parts.append(_LogPart(attempt=number))
            elif _over(look, number):
                parts.append(self._gone(run, number))
        return parts

    def _gone(self, run: LedgerRun, number: int) -> _LogPart:
        """Handles a missing log: it was removed by `storage clean`, or left behind when the run moved."""
        name = self._wanted.file
        copy = self._results / run.run_id / "attempts" / str(number) / name
        if copy.is_file():
            said = f"the {name} of attempt {number} is no longer on {run.cluster}; this is the synced copy"
            return _LogPart(said, copy=copy)
        if self._wanted.rank:
            return _LogPart(
                f"attempt {number} has no log of rank {self._wanted.rank}: it ran on fewer nodes, or one "
                "node has several ranks and its log is that of the first"
            )
        if self._wanted.stderr:
            return _LogPart(f"attempt {number} has no separate standard error")
        return _LogPart(f"the log of attempt {number} is no longer on {run.cluster} and was not synced")


class _LogFollower:
    """Prints what a run logs from now on, from attempt to attempt."""

    def __init__(
        self, cluster: Cluster, source: LogSource, wanted: Wanted, say: Callable[[str], None]
    ) -> None:
        self._cluster, self._source, self._wanted, self._say = cluster, source, wanted, say
        self._said = ""
        self._pause = self._asked = 0.0

    def follow(self, at: int | None) -> Iterator[bytes]:
        """Yields everything from now on; `at` is the attempt that was printed so far."""
        look = self._source.look()
        while True:
            if at is not None:
                if at in look.sizes and not _over(look, at):
                    yield from self._source.follow(at)
                    look = self._source.look()
                if at in look.sizes and (self._source.offset or 0) < look.sizes[at]:
                    yield from self._source.read(at)  # the rest after the stream ended
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

    def _state(self) -> RunState | None:
        """Returns the run's state, reported unless running; None if the scheduler was queried recently."""
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
            source = self._source
            piece = Piece(source.path(SCHEDULER), lines=self._wanted.lines)
            yield from (chunk.data for chunk in read_pieces(source.transport, [piece]))


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
    """Returns the attempt after `at`; the newest if `at` is None."""
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
    """Returns a readable reason why an attempt ended."""
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
