"""A command line whose faults are one line with the nearest valid name."""

from __future__ import annotations

import argparse
import difflib
import math
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn

from trainer.errors import UsageError

_MOST_SEEDS = 64
"""In one process."""


class _WholeNames(argparse.HelpFormatter):
    """Help whose lines end between words: a name with hyphens stays in one piece, to be copied."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError` instead of printing its whole usage."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False, formatter_class=_WholeNames)

    def error(self, message: str) -> NoReturn:
        """Raises.

        Raises:
            UsageError: always.
        """
        raise UsageError(message, hint=f"see {self.prog} --help")

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parses the whole command line.

        Raises:
            UsageError: an unknown option (with the nearest ones), or a value that cannot be read.
        """
        namespace, unknown = self.parse_known_args(argv)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            self.error(f"unknown argument {unknown[0]!r}{nearest(unknown[0].split('=')[0], known)}")
        return namespace


def nearest(name: str, known: Sequence[str]) -> str:
    """Returns `; did you mean X?` for the closest known names, or nothing."""
    close = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def seeds(text: str) -> tuple[int, ...]:
    """Reads seeds as an argparse type: `1..8`, `1,2,5` or both mixed; each once."""
    found: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not all(end.isdecimal() for end in ((first, last) if dots else (first,))):
            raise argparse.ArgumentTypeError(f"{part!r} is not a seed; write 1..8 or 1,2,5")
        begin, end = int(first), int(last if dots else first)
        if end < begin:
            raise argparse.ArgumentTypeError(f"{part} counts backwards; write {end}..{begin}")
        if end - begin >= _MOST_SEEDS:
            raise argparse.ArgumentTypeError(_too_many(end - begin + 1))
        found += range(begin, end + 1)
    if twice := sorted(seed for seed in set(found) if found.count(seed) > 1):
        raise argparse.ArgumentTypeError(f"{twice[0]} is listed twice")
    if len(found) > _MOST_SEEDS:
        raise argparse.ArgumentTypeError(_too_many(len(found)))
    return tuple(found)


def number(text: str) -> float:
    """Reads a finite number as an argparse type."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return value


def _too_many(count: int) -> str:
    return f"{count:,} seeds are too many for one process; use at most {_MOST_SEEDS}"


def at_least(least: int) -> Any:
    """Returns an argparse type: an integer of at least `least`; underscores and `2e6` are understood."""

    def read(text: str) -> int:
        number = float(text)
        if not number.is_integer() or number < least:
            raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least {least}")
        return int(number)

    read.__name__ = "whole number"  # argparse calls it so in its message
    return read
