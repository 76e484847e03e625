"""Counting how often something is done in a second, and how much memory is held meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import torch

from trainer.telemetry.usage import resident_bytes

SETTLE = 0.2
"""Share of the time measured that goes by before: caches fill, graphs are captured, clocks rise."""
_SAMPLE_SECONDS = 0.1


class Peak:
    """The most memory this process and its descendants held, looked at several times a second."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> int:
        """Ends the watch; returns the peak in bytes."""
        self.nbytes = max(self.nbytes, resident_bytes())
        self._stop.set()
        self._thread.join()
        return self.nbytes

    def _watch(self) -> None:
        while not self._stop.wait(_SAMPLE_SECONDS):
            self.nbytes = max(self.nbytes, resident_bytes())


def rate(work: Callable[[], object], seconds: float, wait: Callable[[], None] = lambda: None) -> float:
    """Returns calls a second, at least three of them."""
    work()
    wait()
    for _ in _until(SETTLE * seconds):
        work()
    wait()
    begun, count = time.perf_counter(), 0
    for _ in _until(seconds):
        work()
        count += 1
    wait()
    return count / (time.perf_counter() - begun)


def _until(seconds: float) -> Iterator[None]:
    end = time.perf_counter() + seconds
    yield from (None, None, None)
    while time.perf_counter() < end:
        yield


def waiting(device: torch.device) -> Callable[[], None]:
    """Returns what waits until a device has done all that it was given."""
    return torch.cuda.synchronize if device.type == "cuda" else lambda: None
