"""Describes an exception from a user's environment: its message, and the lines of that code behind it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import NamedTuple

_OURS = Path(__file__).resolve().parents[1]


class Fault(NamedTuple):
    """The description of an exception.

    Attributes:
        cause: its type and the first line of its text; one line.
        where: the lines of the environment's own code that led to it, then the whole text.
    """

    cause: str
    where: str


def fault_of(error: BaseException) -> Fault:
    """Describes an exception that an environment raised.

    The frames of the trainer that led to the environment's are left out: they are not at fault.
    """
    frames = traceback.extract_tb(error.__traceback__)
    theirs = list(frames)
    while theirs and _OURS in Path(theirs[0].filename).resolve().parents:
        theirs.pop(0)
    words = traceback.format_exception_only(error)
    plain = traceback.TracebackException(type(error), error, None)
    plain.__notes__ = None  # they would come last
    cause = list(plain.format_exception_only())[-1].strip().splitlines()[0]
    if isinstance(error, SystemExit):
        cause = f"it called sys.exit({error.code!r})"
        words = [f"{cause}\n"]
    return Fault(cause, "".join([*traceback.format_list(theirs or frames), *words]).rstrip())
