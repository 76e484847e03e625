"""Reads logs from a run directory on its cluster, by offsets that survive a dropped connection."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.errors import TransportError
from clusterkit.probes import Probe, ask
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.pieces import RELOGINS, Piece, read_pieces
from clusterkit.runs.record import Attempt, RunRecord, records
from clusterkit.transport.base import Transport
from clusterkit.transport.faults import LostError, UnreachableError

SCHEDULER = -1
"""Used in place of an attempt number, for the scheduler's own log."""

_PATIENCE_SECONDS = 900.0
"""How long a follower waits for a lost network."""
_QUIET_SECONDS = 60
"""Seconds without growth after which a follower checks whether the job still exists."""

_SIZE = re.compile(r"^([0-9]{1,9}) (-?[0-9]{1,9}) +([0-9]{1,18})$", re.MULTILINE)

_SIZES = rf"""
cd "$ck_dir" 2>/dev/null || exit 0
for ck_file in attempts/*/"$ck_name" {SCHEDULER_LOG}; do
  [ -f "$ck_file" ] || continue
  ck_attempt=${{ck_file#attempts/}} ck_attempt=${{ck_attempt%%/*}}
  [ "$ck_attempt" != {SCHEDULER_LOG} ] || ck_attempt={SCHEDULER}
  printf '%s %s %s\n' "$ck_number" "$ck_attempt" "$(wc -c <"$ck_file")"
done
"""

# $1: file. $2: offset. The output is the bytes from that offset. It ends soon after the attempt has an exit
# record or a successor, after a long time without growth, or when its reader is gone (tail then fails to
# write).
_FOLLOW = rf"""
file=$1
size=$(($(wc -c <"$file"))) || exit 3
folder=${{file%/*}} folder=${{folder%/ranks}}
next=${{folder%/*}}/$((${{folder##*/}} + 1))
tail -c "+$(($2 + 1))" -f "$file" & tail=$!
trap 'kill $tail 2>/dev/null' EXIT
trap 'exit 0' HUP INT TERM PIPE
quiet=0
while test ! -e "$folder/exit.json" && test ! -e "$next/start.json" && kill -0 $tail 2>/dev/null; do
  sleep 1
  now=$(($(wc -c <"$file"))) quiet=$((quiet + 1))
  test "$now" = "$size" || quiet=0
  size=$now
  test "$quiet" -lt {_QUIET_SECONDS} || exit 0
done
sleep 1
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Look:
    """A run's logs at one moment."""

    record: RunRecord
    sizes: Mapping[int, int]
    """Bytes of each attempt's file by number; the scheduler's log is under SCHEDULER."""

    def attempt(self, number: int) -> Attempt:
        """Returns the records of one attempt; empty if there are none."""
        found = (each for each in self.record.attempts if each.number == number)
        return next(found, Attempt(number))

    @property
    def numbers(self) -> list[int]:
        """Numbers of the attempts that were started, in order."""
        started = {one.number for one in self.record.attempts if one.start is not None}
        return sorted(started | (self.sizes.keys() - {SCHEDULER}))


@dataclass(frozen=True)
class Wanted:
    """Which of a run's logs to read."""

    lines: int | None = 50
    """Number of last lines; None means all."""
    attempt: int | None = None
    """Number of the attempt; None means the newest."""
    everything: bool = False
    """All attempts, in order."""
    stderr: bool = False
    """Only standard error."""
    follow: bool = False
    """Continue until the run, or the chosen attempt, has ended."""
    rank: int = 0
    """Of a run on several nodes, the rank whose output to read."""

    @property
    def file(self) -> str:
        """The file of each attempt."""
        if self.rank:
            return f"ranks/{self.rank}.log"
        return "stderr" if self.stderr else "log"


def log_path(run: LedgerRun, number: int, name: str) -> str:
    """Returns the path of an attempt's file of this name; that of the scheduler's log for SCHEDULER."""
    return f"{run.run_dir}/" + (SCHEDULER_LOG if number == SCHEDULER else f"attempts/{number}/{name}")


def look_all(
    transport: Transport, runs: Sequence[LedgerRun], name: str, *, seconds: float | None = 120.0
) -> list[Look]:
    """Reads the attempts of some runs and the sizes of their logs, in one round trip.

    Args:
        transport: to their cluster.
        runs: the runs.
        name: the file of each attempt: `log`, `stderr` or one of `ranks/`.
        seconds: time limit.

    Raises:
        TransportError: the connection was lost and could not be replaced.
    """
    names = [
        f"ck_number={number} ck_dir={shlex.quote(run.run_dir)} ck_name={name}"
        for number, run in enumerate(runs)
    ]
    script = "\n".join(f"{words}\n({_SIZES})" for words in names)
    sizes, files = Probe("sizes", script, _SIZE.findall), records([run.run_dir for run in runs])
    answers = ask(transport, sizes, files, timeout=seconds)
    read = answers.of(files)
    told: list[dict[int, int]] = [{} for _ in runs]
    for number, attempt, size in answers.of(sizes):
        if int(number) < len(told):
            told[int(number)][int(attempt)] = int(size)
    return [Look(read[run.run_dir], sizes) for run, sizes in zip(runs, told, strict=True)]


class LogSource:
    """Reads the logs of one run; after a lost connection it continues at the same offset.

    Args:
        transport: the connection to the cluster.
        run: the run.
        name: the file of each attempt: `log`, `stderr` or one of `ranks/`.
        patient: wait some time for a lost network.
        say: called with a line about the lost network.
    """

    def __init__(
        self,
        transport: Transport,
        run: LedgerRun,
        name: str,
        *,
        patient: bool,
        say: Callable[[str], None],
    ) -> None:
        self.transport, self.run = transport, run
        self.offset: int | None = None
        """Offset in the file that is followed; None before the first byte."""
        self._name, self._say = name, say
        self._patience = _PATIENCE_SECONDS if patient else 0.0
        self._losses = 0

    def look(self) -> Look:
        """Reads the attempts and the sizes of their logs, in one round trip.

        Raises:
            TransportError: the connection was lost and could not be replaced.
        """
        (look,) = self.patiently(lambda: look_all(self.transport, [self.run], self._name))
        return look

    def read(self, number: int) -> Iterator[bytes]:
        """Yields the bytes of an attempt's file from `offset` to its present end.

        Raises:
            TransportError: the file cannot be read, or a lost connection could not be replaced.
        """
        for chunk in read_pieces(self.transport, [Piece(self.path(number), self.offset)]):
            self.offset = chunk.offset
            yield chunk.data

    def follow(self, number: int) -> Iterator[bytes]:
        """Yields the bytes of an attempt's file from `offset` on, as they are written; it may end early.

        Raises:
            TransportError: the file cannot be read, or a lost connection could not be replaced.
        """
        self.offset = self.offset or 0
        try:
            for data in self.transport.stream(
                ["sh", "-c", _FOLLOW, "sh", self.path(number), str(self.offset)]
            ):
                self._losses = 0
                self.offset += len(data)
                yield data
        except LostError:
            self._count_loss()

    def path(self, number: int) -> str:
        """Returns the path of an attempt's file, or of the scheduler's log."""
        return log_path(self.run, number, self._name)

    def patiently(self, work: Callable[[], T]) -> T:
        """Repeats an idempotent action until the connection holds.

        Raises:
            TransportError: the network stayed down, or the login was refused.
        """
        began, told = time.monotonic(), False
        while True:
            try:
                return work()
            except LostError:
                self._count_loss()
            except TransportError as error:
                waited = time.monotonic() - began
                if not isinstance(error.__cause__, UnreachableError) or waited > self._patience:
                    raise
                if not told:
                    self._say(f"{error.__cause__.cause}; still trying")
                told = True

    def _count_loss(self) -> None:
        """Counts a lost connection, in its exception handler; re-raises the exception after too many."""
        self._losses += 1
        if self._losses > RELOGINS:
            raise
