"""Formats shares and names for a report. Pure."""

from __future__ import annotations

GIB = 1 << 30

_CONTROLS = (*(code for code in range(32) if chr(code) not in "\t\n"), *range(0x7F, 0xA0))
_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
_UNSEEN = dict.fromkeys((*_CONTROLS, *_DIRECTIONS, *range(0xD800, 0xE000)), 0xFFFD)
_LONGEST = 60
"""Most characters of a name in a picture."""


def share(value: float) -> str:
    """A share of 0..1, such as "0.4%" or "12%"; never "0%" for a positive one."""
    return f"{value:.1%}" if 0 < value < 0.01 else f"{value:.0%}"


def visible(text: str) -> str:
    """A text with U+FFFD in place of control characters, with which a run could mislead readers."""
    return text.translate(_UNSEEN)


def shortened(name: str) -> str:
    """A name shortened to fit into a picture."""
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
