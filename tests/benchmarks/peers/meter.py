"""Reads wall clock, processor time, memory and GPU of a side while it trains; the same reading for all.

Runs in every side's interpreter: of ours it imports only what the standard library suffices for, and NVML.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from trainer.telemetry.gpu import GpuSampler
from trainer.telemetry.usage import descendants, processor_seconds

SAMPLE_SECONDS = 2.0


def proportional_bytes() -> int:
    """Returns the memory of this process and all its descendants, what they share counted once."""
    total = 0
    for pid in ("self", *descendants()):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


class Meter:
    """Measures from a step on, when whatever happens once has happened.

    Args:
        begin: environment steps from which on speed counts.
        device: where the side learns.

    Attributes:
        updates: gradient steps so far; a side counts them here, or `count_optimizers` does.
    """

    def __init__(self, begin: int, device: torch.device) -> None:
        self._begin = begin
        self._device = device
        self._first: tuple[int, int, float, float] | None = None
        self._last = (0, 0, 0.0, 0.0)
        self._by_optimizer: Counter[int] = Counter()
        self.updates = 0
        self._peak = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        cuda = device.type == "cuda"
        uuid = str(torch.cuda.get_device_properties(device).uuid) if cuda else None
        sampler = GpuSampler.start(uuid)
        self._gpu = sampler.reader() if sampler else None
        self._gpu_found: dict[str, Any] = {}

    def count_optimizers(self) -> None:
        """Counts the steps of PyTorch's optimisers; where there are several, those of the busiest."""

        def stepped(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            self._by_optimizer[id(optimizer)] += 1
            self.updates = max(self._by_optimizer.values())

        register_optimizer_step_post_hook(stepped)

    def at(self, steps: int) -> None:
        """To be called whenever this many steps have been made and all that is due was learnt from them."""
        if self._first is None and steps >= self._begin:
            if self._gpu:
                self._gpu.read()
            self._thread.start()
            self._first = self._now(steps)

    def end(self, steps: int) -> None:
        """To be called when the last step has been made and learnt from, before anything else."""
        self._last = self._now(steps)
        self._gpu_found = dict(self._gpu.read()) if self._gpu else {}
        self._over.set()
        if self._first is not None:
            self._thread.join()
        self._peak = max(self._peak, proportional_bytes())

    def findings(self) -> dict[str, Any]:
        """Returns rates between the marks, and memory; None where nothing could be measured."""
        assert self._first is not None, "the run ended before it began to count"
        first, last = self._first, self._last
        steps, updates, wall, processor = (b - a for a, b in zip(first, last, strict=True))
        gpu = self._gpu_found
        return {
            "counted_steps": steps,
            "counted_seconds": round(wall, 3),
            "steps_per_second": steps / wall,
            "steps_per_cpu_second": steps / processor if processor > 0 else None,
            "updates_per_second": updates / wall,
            "updates": last[1],
            "peak_bytes": self._peak,
            "gpu_utilization": gpu.get("utilization"),
            "gpu_memory_bytes": gpu.get("memory_used_bytes"),
        }

    def _now(self, steps: int) -> tuple[int, int, float, float]:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return steps, self.updates, time.perf_counter(), processor_seconds()

    def _watch(self) -> None:
        while True:
            self._peak = max(self._peak, proportional_bytes())
            if self._over.wait(SAMPLE_SECONDS):
                return
