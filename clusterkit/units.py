"""Reads and writes sizes ("64G") and durations ("1d12h") as Slurm means them; formats spans and numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from clusterkit.errors import ConfigError

Value = TypeVar("Value")

GIB = 1 << 30
SIZE_EXAMPLES = '"500M", "64G", "1.5T"'
DURATION_EXAMPLES = '"30m", "4h", "1d12h", "04:00:00", "1-12:00:00"'

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_SIZE_FACTOR = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_COUNTED = re.compile(
    r"(?:([0-9]{1,9})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9})s)?", re.IGNORECASE
)
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9}):([0-5][0-9]):([0-5][0-9])")

_DIGITS = 3
"""Significant digits of a single number."""
_MOST_DIGITS = 17
"""Enough digits to distinguish any two doubles."""

CLOCKS_DIFFER = 60.0
"""Seconds; clocks of machines that differ by more are badly kept."""


def parsed(option: str, parse: Callable[[str], Value], text: str) -> Value:
    """Parses an option's value, such as a time or a size.

    Args:
        option: the option's name, for the error.
        parse: raises ValueError for an invalid value.
        text: the value as given.

    Raises:
        ConfigError: the value is invalid.
    """
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from None


def parse_size(text: str) -> int:
    """Bytes in a size such as "64G"; units are binary as in Slurm (K = 1024).

    Raises:
        ValueError: the number or the unit is missing, or the unit is unknown.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a size; write a number and K, M, G or T, e.g. {SIZE_EXAMPLES}")
    return round(float(match[1]) * _SIZE_FACTOR[match[2].upper()])


def parse_duration(text: str) -> int:
    """Seconds in a duration such as "4h", "1d12h", "04:00:00" or "1-12:00:00".

    A bare number is refused: Slurm reads it as minutes, most people as hours.

    Raises:
        ValueError: it has neither form.
    """
    stripped = text.strip()
    if clock := _CLOCK.fullmatch(stripped):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    elif stripped and (counted := _COUNTED.fullmatch(stripped)):
        days, hours, minutes, seconds = (int(part or 0) for part in counted.groups())
    elif stripped.isdecimal():
        units = f"{stripped}h or {stripped}m"
        raise ValueError(f"{text!r} is not a duration; write {units}, or e.g. {DURATION_EXAMPLES}")
    else:
        raise ValueError(f"{text!r} is not a duration; write e.g. {DURATION_EXAMPLES}")
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def format_size(size: int) -> str:
    """The shortest text that `parse_size` reads back, e.g. "64G"; exact for whole KiB."""
    for unit in "TGM":
        if size and size % _SIZE_FACTOR[unit] == 0:
            return f"{size // _SIZE_FACTOR[unit]}{unit}"
    return f"{size // 1024}K" if size % 1024 == 0 else f"{size / 1024:.3f}K"


def format_bytes(size: float) -> str:
    """A size as a person reads it, with three digits at most, e.g. "547 MiB" or "1.5 GiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_duration(seconds: int) -> str:
    """The shortest text that `parse_duration` reads back, e.g. "1d12h"."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    day, hour = divmod(hours, 24)
    parts = ((day, "d"), (hour, "h"), (minute, "m"), (second, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count) or "0s"


def format_seconds(seconds: float) -> str:
    """A span of time in its two largest units, e.g. "2h 05m"."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02}h"
    if hours:
        return f"{hours}h {minute:02}m"
    return f"{minutes}m {second:02}s" if minutes else f"{second}s"


def significant(value: float, digits: int = _DIGITS) -> str:
    """A number with the given significant digits; digits before the decimal point are always kept.

    >>> significant(0.010527), significant(123456.7), significant(2)
    ('0.0105', '123,457', '2')
    """
    if not math.isfinite(value) or not value:
        return f"{value + 0.0:g}"  # there is a negative zero
    size = math.floor(math.log10(abs(value)))
    if not -5 < size < 15:
        return f"{value:.{digits}g}"
    text = f"{value:,.{max(0, digits - 1 - size)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def percent(share: float, decimals: int = 0) -> str:
    """A share of 0..1 as a percentage; never 0% for something, never 100% for less than all.

    >>> percent(0.5), percent(0.004), percent(0.9996)
    ('50%', '0.4%', '99.96%')
    """
    while decimals < _MOST_DIGITS and 0 < share < 1:
        if float(f"{share:.{decimals + 2}f}") not in (0, 1):
            break
        decimals += 1
    return f"{share:.{decimals}%}"


def beside(values: Sequence[float | None]) -> list[str]:
    """Numbers for comparison, with enough digits to show that two differ.

    >>> beside([0.010527, 0.010417]), beside([4123.4, 4123.2, None])
    (['0.0105', '0.0104'], ['4,123.4', '4,123.2', '-'])
    """
    return _apart(values, range(_DIGITS, _MOST_DIGITS + 1), significant)


def percents_beside(shares: Sequence[float | None], decimals: int = 1) -> list[str]:
    """Shares of 0..1 for comparison, as percentages; see `beside`.

    >>> percents_beside([0.5, 0.50002])
    ['50.000%', '50.002%']
    """
    return _apart(shares, range(decimals, _MOST_DIGITS), percent)


def _apart(values: Sequence[float | None], precisions: range, show: Callable[[float, int], str]) -> list[str]:
    known = [value for value in values if value is not None]
    for precision in precisions:
        if len({show(value, precision) for value in known}) >= len(set(known)):
            break
    return ["-" if value is None else show(value, precision) for value in values]


def listed(names: Sequence[str], most: int) -> str:
    """Joins names with commas; of more than `most`, the rest is counted."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def plural(count: int | str, noun: str) -> str:
    """Returns a count and its noun: "1 run", "3 runs", "0.5 hours"."""
    return f"{count} {noun}" if str(count) == "1" else f"{count} {noun}s"
