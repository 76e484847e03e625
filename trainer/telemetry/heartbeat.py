"""Writes `heartbeat.json`, the program's progress; docs/run-directory.md has its format."""

from __future__ import annotations

import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

from trainer.files import atomic_write_json, plain
from trainer.telemetry.gpu import GpuSampler
from trainer.telemetry.usage import ProcessorMeter, resident_bytes

INTERVAL_SECONDS = 1.0
WINDOW_SECONDS = 30.0
"""The window of the rate."""
ENOUGH_SECONDS = 3.0
"""Shorter windows say little and give no rate."""
_MARK_SECONDS = 1.0
"""One mark a second is enough and keeps the window small however often `update` is called."""


class Heartbeat:
    """Keeps the newest facts and writes them from a thread, at most once in `interval` seconds.

    `update` costs a few dictionary writes, so a loop may call it at every step. The file's `time` is that
    of the last `update`, not of the write: a hung program looks as old as it is, although its threads
    live on.

    Args:
        path: the file.
        attempt: the number of this start of the run.
        total_steps: environment steps the run is to make.
        step: where this attempt starts, for the rate.
        gpu: the sampler to read at each write, if there is one.
        interval: seconds between two writes at the least.

    Attributes:
        fault: why the file could not be written since the last `take_fault`, if so.
    """

    def __init__(
        self,
        path: Path,
        attempt: int,
        total_steps: int,
        *,
        step: int = 0,
        gpu: GpuSampler | None = None,
        interval: float = INTERVAL_SECONDS,
    ) -> None:
        self._path = path
        self._gpu = gpu.reader() if gpu else None
        self._processors = ProcessorMeter()
        self._interval = interval
        self._facts: dict[str, Any] = {
            "schema": 1,
            "time": time.time(),
            "attempt": attempt,
            "step": step,
            "total_steps": total_steps,
            "steps_per_second": None,
            "updates": 0,
            "phase": "start",
            "success": None,
            "return": None,
            "checkpoint": None,
        }
        self._rate = RecentRate(step)
        self._lock = threading.Lock()
        self._changed = True
        self._stop = threading.Event()
        self.fault: OSError | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._thread.start()

    def update(self, **facts: Any) -> None:
        """Takes over `step`, `updates`, `phase`, `success`, `return`, `checkpoint`; None changes nothing.

        Raises:
            KeyError: a name the file does not have.
        """
        now = time.monotonic()
        with self._lock:
            for key, value in facts.items():
                if key not in self._facts:
                    raise KeyError(key)
                if value is not None:
                    self._facts[key] = value
            self._facts["time"] = time.time()
            self._changed = True
            self._rate.update(now, self._facts["step"], self._facts["phase"])

    @property
    def steps_per_second(self) -> float | None:
        """Recent environment steps a second; None until there is enough data."""
        with self._lock:
            return self._rate.steps_per_second

    def take_fault(self) -> OSError | None:
        """Returns, once, why the file could not be written since the last call; None if it could."""
        with self._lock:
            fault, self.fault = self.fault, None
        return fault

    def close(self, phase: str | None = None) -> None:
        """Writes the last state and ends the thread; a second call does nothing.

        Raises:
            OSError: the last state cannot be written.
        """
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        self.update(phase=phase)
        self._write()

    def _run(self) -> None:
        wait = 0.0
        while not self._stop.wait(wait):
            wait = self._interval
            if self._changed:
                try:
                    self._write()
                except OSError as fault:
                    with self._lock:
                        self.fault = fault

    def _write(self) -> None:
        gpu = self._gpu.read() if self._gpu else None
        with self._lock:
            self._changed = False
            facts = {**self._facts, "steps_per_second": self._rate.steps_per_second}
        usage = {"cpu_share": self._processors.read(), "rss_bytes": resident_bytes(), "gpu": gpu}
        atomic_write_json(self._path, plain({**facts, **usage}))


class RecentRate:
    """The recent speed of a run: environment steps a second over the last `WINDOW_SECONDS`.

    What comes before the first step is building environments, and what comes before the first update is
    collecting without learning: neither says how fast the rest will be, so both are left out.

    Args:
        step: where the attempt starts.
    """

    def __init__(self, step: int) -> None:
        self._begin = step
        self._phase = ""
        self._marks: deque[tuple[float, int]] = deque()

    def update(self, now: float, step: int, phase: str) -> None:
        """Records the run's position.

        Args:
            now: monotonic seconds.
            step: environment steps made.
            phase: as heartbeat.json has it.
        """
        learns = phase != "warmup" and self._phase == "warmup"
        self._phase = phase
        if not self._marks:
            if step != self._begin:
                self._marks.append((now, step))
        elif learns or step < self._marks[-1][1]:  # or it went back to a checkpoint
            self._marks = deque([(now, step)])
        elif now - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((now, step))
            while now - self._marks[0][0] > WINDOW_SECONDS and len(self._marks) > 2:
                self._marks.popleft()

    @property
    def steps_per_second(self) -> float | None:
        """The rate; None until there is enough to tell."""
        if len(self._marks) < 2:
            return None
        (since, first), (until, last) = self._marks[0], self._marks[-1]
        return (last - first) / (until - since) if until - since >= ENOUGH_SECONDS else None
