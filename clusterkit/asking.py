"""Asks the user at the terminal. Questions go to standard error, because stdout may be a pipe."""

from __future__ import annotations

import sys

from clusterkit.errors import ClusterkitError
from clusterkit.terminal import tamed


class UnansweredError(ClusterkitError):
    """The input ended, by Ctrl-D or because it is closed, before a question was answered."""

    def __init__(self, question: str) -> None:
        asked = " ".join(question.split()).rstrip(":")
        super().__init__(f"no answer was given to: {asked}", hint="repeat the command and answer it")


def ask(question: str) -> str:
    """Reads one line, with its spaces.

    Raises:
        UnansweredError: the input ended.
    """
    print(f"{tamed(question.rstrip())} ", end="", file=sys.stderr, flush=True)  # noqa: T201
    line = sys.stdin.readline()
    if not line:
        _end_line()
        raise UnansweredError(question)
    return line.rstrip("\n")


def ask_hidden(question: str) -> str:
    """Reads one line without echo.

    Raises:
        UnansweredError: the input ended.
    """
    from getpass import getpass

    try:
        return getpass(f"{tamed(question.rstrip())} ")  # not on standard error
    except EOFError:
        _end_line()
        raise UnansweredError(question) from None


def at_terminal() -> bool:
    """Whether the user can be asked: standard input and standard error are both a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def agree(question: str) -> bool:
    """Asks yes or no; an empty answer means no.

    Raises:
        UnansweredError: the input ended.
    """
    while True:
        said = ask(f"{question} [y/N]:").strip().lower()
        if said in ("y", "yes"):
            return True
        if said in ("", "n", "no"):
            return False


def _end_line() -> None:
    print(file=sys.stderr)  # noqa: T201 - Ctrl-D leaves the cursor behind the question
