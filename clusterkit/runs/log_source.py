"""Reads logs from a run directory on its cluster, by offsets that survive a dropped connection."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.errors import TransportError
from clusterkit.probes import Probe, ask
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.record import Attempt, RunRecord, records
from clusterkit.transport.base import Transport
from clusterkit.transport.faults import LostError, UnreachableError
from clusterkit.untrusted import ordinal

SCHEDULER = -1
"""Used in place of an attempt number, for the scheduler's own log."""

_RELOGINS = 8
"""Maximum number of consecutive connections lost without delivering a byte."""
_PATIENCE_SECONDS = 900.0
"""How long a follower waits for a lost network."""
_WINDOW = 8 << 20
"""Bytes at the end of a log that are searched for its last lines."""
_QUIET_SECONDS = 60
"""Seconds without growth after which a follower checks whether the job still exists."""

_SIZE = re.compile(r"^(-?[0-9]{1,9}) +([0-9]{1,18})$", re.MULTILINE)
_HEAD_BYTES = 64
"""Of the line in front of a stream's bytes, at most."""

_SIZES = rf"""
cd "$ck_dir" 2>/dev/null || exit 0
for ck_file in attempts/*/"$ck_name" {SCHEDULER_LOG}; do
  [ -f "$ck_file" ] || continue
  ck_attempt=${{ck_file#attempts/}} ck_attempt=${{ck_attempt%%/*}}
  [ "$ck_attempt" != {SCHEDULER_LOG} ] || ck_attempt={SCHEDULER}
  printf '%s %s\n' "$ck_attempt" "$(wc -c <"$ck_file")"
done
"""

# $1: file. $2: offset; if empty, $3 is the number of last lines (empty: all). $4: non-empty to follow.
# The output is a line with the offset, then the bytes from that offset. A follower ends soon after the
# attempt has an exit record or a successor, after a long time without growth, or when its reader is gone
# (tail then fails to write).
_STREAM = rf"""
file=$1 offset=$2 lines=$3
size=$(($(wc -c <"$file"))) || exit 3
if test -z "$offset" && test -n "$lines"; then
  window={_WINDOW >> 3}
  while :; do
    test "$window" -lt "$size" || window=$size
    # a log may have no line ends: then its last bytes are shown
    last=$(($(tail -c +$((size - window + 1)) "$file" | head -c "$window" | tail -n "$lines" | wc -c)))
    if test "$last" -lt "$window" || test "$window" -ge "$size"; then break; fi
    test "$window" -lt {_WINDOW} || break
    window=$((window * 8))
  done
  offset=$((size - last))
fi
offset=$((${{offset:-0}}))
echo "$offset"
test -n "$4" || exec tail -c "+$((offset + 1))" "$file"
folder=${{file%/*}} folder=${{folder%/ranks}}
next=${{folder%/*}}/$((${{folder##*/}} + 1))
tail -c "+$((offset + 1))" -f "$file" & tail=$!
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
        found = (one for one in self.record.attempts if one.number == number)
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
        """Offset of `stream` in its file; None before the first byte."""
        self._name, self._say = name, say
        self._patience = _PATIENCE_SECONDS if patient else 0.0
        self._losses = 0

    def look(self) -> Look:
        """Reads the attempts and the sizes of their logs, in one round trip.

        Raises:
            TransportError: the connection was lost and could not be replaced.
        """
        names = f"ck_dir={shlex.quote(self.run.run_dir)} ck_name={self._name}\n"
        sizes, files = Probe("sizes", names + _SIZES, _SIZE.findall), records([self.run.run_dir])
        answers = self.patiently(lambda: ask(self.transport, sizes, files))
        told = {int(number): int(size) for number, size in answers.of(sizes)}
        return Look(answers.of(files)[self.run.run_dir], told)

    def stream(self, number: int, *, lines: int | None, follow: bool) -> Iterator[bytes]:
        """Yields the bytes of an attempt's file from `offset`; without one, its last lines or all of it.

        It may end early; `offset` is then less than the size that `look` reports.

        Raises:
            TransportError: the file cannot be read, or a lost connection could not be replaced.
        """
        file = SCHEDULER_LOG if number == SCHEDULER else f"attempts/{number}/{self._name}"
        offset = "" if self.offset is None else str(self.offset)
        last = "" if lines is None else str(lines)
        arguments = [f"{self.run.run_dir}/{file}", offset, last, "follow" if follow else ""]
        head = b""
        begun = False
        try:
            for data in self.transport.stream(["sh", "-c", _STREAM, "sh", *arguments]):
                rest = data
                if not begun:
                    head += data
                    first, begun_now, rest = head.partition(b"\n")
                    start = ordinal(first[:_HEAD_BYTES].decode("ascii", "replace"))
                    if not begun_now and len(head) < _HEAD_BYTES:
                        continue
                    if start is None:
                        raise TransportError(f"{self.transport.where} did not say where {file} begins")
                    begun, self.offset = True, start
                if rest:
                    self._losses = 0
                    self.offset = (self.offset or 0) + len(rest)
                    yield rest
        except LostError:
            self._count_loss()

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
        if self._losses > _RELOGINS:
            raise
