"""What a GPU does, kernel by kernel: in updates by themselves, and in a whole run.

    python -m tests.benchmarks.gpu_profile COUNT UPDATES FOLDER ARGV...

is `python -m trainer ARGV...`, whose updates after the first COUNT are looked at, so many, before a signal
ends it; it writes to FOLDER. One line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from tests.benchmarks._learners import path_of
from tests.benchmarks.gpu_runs import progress

NAME = 160
"""Letters of a kernel's name that are kept: templates differ late."""


@contextmanager
def watched() -> Iterator[torch.profiler.profile]:
    """Within, everything that the GPU does is recorded; the operations of this thread where there is none."""
    gpu = torch.cuda.is_available()
    kind = torch.profiler.ProfilerActivity.CUDA if gpu else torch.profiler.ProfilerActivity.CPU
    settle()
    with torch.profiler.profile(activities=[kind]) as profiler:
        yield profiler
        settle()


def settle() -> None:
    """Waits for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def table(profiler: torch.profiler.profile, updates: int) -> dict[str, Any]:
    """Sums up what was recorded, for an update.

    Returns:
        `kernels`: all of them and all copies, by name, with their `calls` and `microseconds`; `count` and
        `microseconds`: of all together; `span_microseconds`: from the first one's begin to the last one's
        end, under a profiler, which slows down a little; `gap_microseconds`: what of it nothing was
        computed in.
    """
    gpu = torch.cuda.is_available()
    kind = torch.autograd.DeviceType.CUDA if gpu else torch.autograd.DeviceType.CPU
    events = [
        event
        for event in profiler.events() or ()
        if event.device_type == kind and not getattr(event, "is_user_annotation", False)
    ]
    found: dict[str, list[float]] = defaultdict(list)
    for event in events:
        spent = event.time_range.elapsed_us() if gpu else event.self_cpu_time_total
        found[event.name[:NAME]].append(spent)
    rows = sorted(((sum(spent), len(spent), name) for name, spent in found.items()), reverse=True)
    times = sorted((event.time_range.start, event.time_range.end) for event in events)
    span, busy = _span_and_busy(times)
    return {
        "kernels": [
            {"name": name, "calls": round(calls / updates, 2), "microseconds": round(spent / updates, 2)}
            for spent, calls, name in rows
        ],
        "count": round(len(events) / updates, 2),
        "microseconds": round(sum(spent for spent, *_ in rows) / updates, 1),
        "span_microseconds": round(span / updates, 1),
        "gap_microseconds": round((span - busy) / updates, 1),
    }


def _span_and_busy(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns how long it is from the first begin to the last end, and for how long something goes on."""
    if not times:
        return 0.0, 0.0
    begun = until = times[0][0]
    busy = 0.0
    for start, end in times:
        busy += max(0.0, end - max(start, until))
        until = max(until, end)
    return until - begun, busy


class _Watch:
    """Takes the place of `Learner.update` in a run: records some updates, then ends the run by a signal."""

    def __init__(self, update: Any, first: int, updates: int) -> None:
        self._update = update
        self._ends = first, first + updates
        self._done = 0
        self._watched: Any = None
        self.profiler: torch.profiler.profile | None = None
        self.path = ""

    def __get__(self, learner: Any, _owner: type) -> Any:
        return lambda: self(learner)

    def __call__(self, learner: Any) -> Any:
        if self._done == self._ends[0]:
            self._watched = watched()
            self.profiler = self._watched.__enter__()
        self._done += 1
        found = self._update(learner)
        if self._done == self._ends[1]:
            self.path = path_of(learner.agent)
            self._watched.__exit__(None, None, None)
            os.kill(os.getpid(), signal.SIGTERM)
        return found


def main(argv: Sequence[str]) -> None:
    """Runs the trainer, and prints what its updates had the GPU do."""
    from trainer.__main__ import main as train
    from trainer.loops.learner import Learner

    first, updates, folder, *words = argv
    watch = _Watch(Learner.update, int(first), int(updates))
    with patch.object(Learner, "update", watch):
        code = train([*words, "--run-dir", folder])
    if watch.profiler is None:
        raise SystemExit(f"the run ended with {code} before its update {first}")
    host = {
        name: share
        for name, share in (progress(Path(folder, "metrics.jsonl"))["last"] or {}).items()
        if name.startswith("time/") or name == "steps_per_second"
    }
    found = {"path": watch.path, **table(watch.profiler, int(updates)), "host": host}
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
