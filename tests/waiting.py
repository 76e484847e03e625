"""Waiting for what must happen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(holds: Callable[[], T], seconds: float = 300.0) -> T:
    """Returns what `holds` returns once that is true; the bound is far beyond what it takes.

    What takes long to look at is looked at less often: the pause is twice the time of a look.
    """
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if answer := holds():
            return answer
        now = time.monotonic()
        assert now < deadline, f"not within {seconds:g} s"
        time.sleep(max(0.02, 2 * (now - began)))
