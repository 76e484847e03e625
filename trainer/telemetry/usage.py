"""What a run uses between two lines of the log: time by part of the loop, processors, memory and GPU."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType

from trainer.machine.processors import usable_processors
from trainer.telemetry.gpu import GpuSampler

SHORTEST_SECONDS = 0.25
_GPU = {
    "utilization": "gpu/utilization",
    "utilization_max": "gpu/utilization_max",
    "memory_used_bytes": "gpu/memory_bytes",
    "power_watts": "gpu/power_watts",
    "temperature_celsius": "gpu/temperature_celsius",
}


class Clock:
    """Adds up the time spent in named parts of one thread's work.

    `with clock("learn"): ...` costs less than a microsecond. Parts do not lie within each other.
    """

    __slots__ = ("_begun", "_name", "_running", "_since", "_spent")

    def __init__(self) -> None:
        self._spent: dict[str, int] = {}
        self._begun = perf_counter_ns()
        self._since = 0
        self._name = ""
        self._running = False

    def __call__(self, name: str) -> Clock:
        """Returns the context in which time counts as that of `name`.

        Raises:
            RuntimeError: inside another part.
        """
        if self._running:
            raise RuntimeError(f"the clock runs for {self._name!r}: {name!r} cannot begin")
        self._name = name
        return self

    def __enter__(self) -> None:
        self._running = True
        self._since = perf_counter_ns()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        spent = perf_counter_ns() - self._since
        self._spent[self._name] = self._spent.get(self._name, 0) + spent
        self._running = False

    def drain(self) -> dict[str, float]:
        """Returns `time/<name>`, the shares of the time since the last call, and `time/other`, the rest.

        They sum to 1. A part seen once stays, with 0; a running part counts up to now.
        Nothing is returned before the first part.
        """
        now = perf_counter_ns()
        if self._running:
            self._spent[self._name] = self._spent.get(self._name, 0) + now - self._since
            self._since = now
        total, self._begun = now - self._begun, now
        if not self._spent or not total:
            return {}
        parts = {**self._spent, "other": total - sum(self._spent.values())}
        self._spent = dict.fromkeys(self._spent, 0)
        return {f"time/{name}": spent / total for name, spent in parts.items()}


class UsageMeter:
    """Reads GPU, processors and memory; a reading covers the time since the one before.

    Args:
        gpu: the sampler, if there is a GPU.
    """

    def __init__(self, gpu: GpuSampler | None) -> None:
        self._gpu = gpu.reader() if gpu else None
        self._processors = ProcessorMeter()

    def read(self) -> dict[str, float]:
        """Returns `gpu/...`, `cpu/share` and `memory/rss_bytes`; unknown values are left out."""
        values = {"cpu/share": self._processors.read(), "memory/rss_bytes": resident_bytes()}
        if self._gpu:
            gpu = self._gpu.read()
            values |= {field: gpu[key] for key, field in _GPU.items()}
        return {field: value for field, value in values.items() if value is not None}


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


def resident_bytes() -> int:
    """Returns the resident memory of this process and its descendants, in bytes.

    Of a descendant only anonymous memory is counted: the rest (shared blocks, libraries) is mostly this
    process's own and would be counted many times. Where there is no /proc the peak of this process alone is
    returned.
    """
    total = _status(os.getpid(), "VmRSS")
    if total is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    for pid in descendants():
        total += _status(pid, "RssAnon") or 0
    return total


def processor_seconds() -> float:
    """Returns the processor time of this process and all its descendants, also of those that have ended.

    Where there is no /proc, descendants count when they have ended.
    """
    times = [_times(pid) for pid in (os.getpid(), *descendants())]
    return sum(os.times()[:4]) if times[0] is None else sum(seconds or 0.0 for seconds in times)


def descendants() -> list[int]:
    """Returns the ids of this process's children, of theirs and so on; none where there is no /proc."""
    pids = [os.getpid()]
    for pid in pids:  # which grows meanwhile
        # A child that ends while we look is no fault: its memory is gone with it.
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    pids += map(int, (task / "children").read_text().split())
    return pids[1:]


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
