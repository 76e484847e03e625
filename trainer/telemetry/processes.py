"""Memory and processor time of this process and its descendants."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from pathlib import Path

from trainer.processors import usable_processors

SHORTEST_SECONDS = 0.25


def resident_bytes() -> int:
    """Returns the resident memory of this process and its descendants, in bytes.

    Of a descendant only anonymous memory is counted: the rest (shared blocks, libraries) is mostly this
    process's own and would be counted many times. Where there is no /proc the peak of this process alone is
    returned.
    """
    own = _status(os.getpid(), "VmRSS")
    if own is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return own + sum(_status(pid, "RssAnon") or 0 for pid in _descendants(os.getpid()))


def processor_seconds() -> float:
    """Returns the processor time of this process and all its descendants, also of those that have ended.

    Where there is no /proc, descendants count when they have ended.
    """
    times = [_times(pid) for pid in (os.getpid(), *_descendants(os.getpid()))]
    return sum(os.times()[:4]) if times[0] is None else sum(each or 0.0 for each in times)


class ProcessorMeter:
    """How busy the usable processors were with this process and its descendants between two readings."""

    def __init__(self) -> None:
        self._last = time.monotonic(), processor_seconds()
        self._share: float | None = None

    def read(self) -> float | None:
        """Returns the share since the last reading: 1 when all usable processors were busy with us all along.

        Processor time is told in steps of a hundredth of a second, so a reading that follows sooner than
        `SHORTEST_SECONDS` repeats the one before it; None if it is the first.
        """
        (then, spent), now = self._last, time.monotonic()
        if now - then >= SHORTEST_SECONDS:
            self._last = now, processor_seconds()
            # a child that ends just while we look is missed, and found again the next time
            self._share = max(self._last[1] - spent, 0.0) / (now - then) / usable_processors()
        return self._share


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    # A child that ends while we look is no fault: its memory is gone with it.
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in map(int, (task / "children").read_text().split()):
                    found += [child, *_descendants(child)]
    return found


def _status(pid: int, key: str) -> int | None:
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/status").open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(f"{key}:"):
                return int(line.split()[1]) * 1024
    return None


def _times(pid: int) -> float | None:
    """Returns the seconds of a process and of its children that have ended; None if it is gone."""
    with contextlib.suppress(OSError):
        # the second field is the program's name, which may hold anything; proc(5) counts from 1
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        return sum(map(int, fields.split()[11:15])) / os.sysconf("SC_CLK_TCK")
    return None
