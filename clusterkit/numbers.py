"""Formats numbers for people, alone and for comparison. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

_DIGITS = 3
"""Significant digits of a single number."""
_MOST_DIGITS = 17
"""Enough digits to distinguish any two doubles."""


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
