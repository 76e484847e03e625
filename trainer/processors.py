"""How many processors this process may use; stdlib only."""

from __future__ import annotations

import os


def usable_processors() -> int:
    """Returns the processors a scheduler or container has left to us; all of them where nothing tells."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
