"""How much memory this process and its children hold."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path


def resident_bytes() -> int:
    """Returns the resident memory of this process and what all its descendants add to it, in bytes.

    Of a descendant only anonymous memory is counted: the rest (shared blocks, libraries) is mostly this
    process's own and would be counted many times. Where there is no /proc the peak of this process alone is
    returned.
    """
    own = _status(os.getpid(), "VmRSS")
    if own is None:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return own + sum(_status(pid, "RssAnon") or 0 for pid in _descendants(os.getpid()))


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
