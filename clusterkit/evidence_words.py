"""Sizes and spans in the evidence of checks. Pure."""

from __future__ import annotations


def size(count: float) -> str:
    """Bytes, e.g. "445 KiB", "547 MiB" or "1.5 GiB"."""
    if count >= 1 << 30:
        return f"{count / 2**30:.1f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 1 << 20 or not count else f"{count / 2**10:.0f} KiB"


def listed(names: list[str], most: int = 6) -> str:
    """Names in a row; of many the first ones."""
    shown = ", ".join(names[:most])
    return f"{shown}, ..." if len(names) > most else shown or "none"
