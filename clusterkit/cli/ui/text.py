"""Numbers and names as a person reads them."""

from __future__ import annotations


def format_bytes(size: float) -> str:
    """A size with three digits at most, e.g. "547 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_count(count: float) -> str:
    """A count of steps, e.g. "2M", "256k", "1.25M"."""
    for factor, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= factor:
            return f"{count / factor:.2f}".rstrip("0").rstrip(".") + unit
    return f"{count:.0f}"


def printable(name: str) -> str:
    r"""A file name on one line, whatever is in it: control characters and what is no Unicode are escaped.

    >>> printable("new\nline")
    'new\\nline'
    """
    return name if name.isprintable() else name.encode("unicode_escape", "surrogatepass").decode("ascii")
