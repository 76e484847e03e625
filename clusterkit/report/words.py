"""Sizes and shares as a report writes them. Pure."""

from __future__ import annotations

GIB = 1 << 30


def size(count: float) -> str:
    """Bytes: "640 MiB", "3.2 GiB", "48 GiB"."""
    if count < GIB:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count / GIB:.0f} GiB" if count >= 10 * GIB else f"{count / GIB:.1f} GiB"


def share(value: float) -> str:
    """A share of 0..1: "0.4%", "12%"; never "0%" for something."""
    return f"{value:.1%}" if 0 < value < 0.01 else f"{value:.0%}"
