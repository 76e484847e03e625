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


def wait_briefly() -> None:
    """Lets threads of libgomp, which PyTorch computes with, sleep soon where they wait for one another.

    They turn in a loop 300 000 times by default. Where another program wants the processor, that makes two
    threads 2 to 6 times slower than one; after 1000 turns 1.3 times, and where there is none it costs 6 %.
    To be called before PyTorch is imported. What the environment says already stays.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
