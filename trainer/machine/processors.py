"""Which processors this process may use, what they are, and how it shares them; stdlib only."""

from __future__ import annotations

import contextlib
import os
import platform


def usable_processors() -> int:
    """Returns the processors a scheduler or container has left to us; all of them where nothing tells."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor_name() -> str:
    """Returns the processor's name as far as the operating system tells it, such as `AMD EPYC 9B14`."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
