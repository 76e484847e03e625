"""Finds the argument that a program refused, and the corrected submission. Pure."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence

from clusterkit.config.options import NATIVE_OPTION

_OPTIONS = (
    "--cluster",
    "--profile",
    "--name",
    "--seed",
    "--set",
    "--unlock",
    NATIVE_OPTION,
    "--time",
    "--total-steps",
)
_FLAGS = ("--until-done", "--not-until-done", "--verify-image")
OWN_PROGRAM = "`program` of the settings"
_MOST = 16_384
"""Most characters of a command line that can be pasted."""
_PLACEHOLDER = "VALUE"
"""Stands where the user must give another value."""
_UNKNOWN = re.compile(
    r"unrecognized arguments: (?P<several>.+)|unknown argument (?P<quoted>'[^']*')"
    r"|[Nn]o such option:? ['\"]?(?P<option>-[\w-]+)|Unrecognized options:? ['\"]?(?P<other>-[\w-]+)"
)
_MEANT = re.compile(r"[Dd]id you mean (--?[\w-]+)\?")
_VALUE = re.compile(
    r"argument (?:-\w[, /]+)?(?P<name>--?[\w-]+)[^:]*: (?P<why>.+)"
    r"|Invalid value for '(?P<click>--?[\w-]+)[^']*': (?P<told>.+)"
)
_MISSING = re.compile(r"following arguments are required: (?P<names>.+)|Missing option '(?P<click>--?[\w-]+)")


def command_words(words: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """The arguments of `submit` recorded in a request.json; None if they cannot be trusted.

    Everything before `--` must be options of clusterkit, and nothing may contain control characters.
    """
    if words is None or not all(map(str.isprintable, words)):
        return None
    if sum(map(len, words)) > _MOST:
        return None
    own = iter(words[: words.index("--")] if "--" in words else words)
    for word in own:
        if word not in _FLAGS and (word not in _OPTIONS or next(own, None) is None):
            return None
    return words


def without_fault(
    words: Sequence[str], said: str, usage: Sequence[str] = (), program: str = OWN_PROGRAM
) -> tuple[str, list[str] | None]:
    """Returns the change to a command line, and the changed line.

    Args:
        words: the arguments of `submit`.
        said: the program's error message.
        usage: the options that the program says it has.
        program: where the arguments that are not in `words` are set.

    Returns:
        The advice, "" if the message names no argument; and the corrected arguments, None if the faulty one
        is not after `--` or the correction is unknown.
    """
    at = words.index("--") + 1 if "--" in words else len(words)
    head, own = list(words[:at]), list(words[at:])
    if match := _UNKNOWN.search(said):
        refused, given = _refused(match), _MEANT.search(said)
        close = difflib.get_close_matches(refused[0].partition("=")[0], usage, n=1)
        meant = given[1] if given else "".join(close)
        return _unknown(head, own, refused, meant, program, listed=bool(match["several"]))
    if match := _VALUE.search(said):
        name, why = match["name"] or match["click"], (match["why"] or match["told"]).strip()
        place = next((i for i, word in enumerate(own) if word == name or word.startswith(f"{name}=")), None)
        if place is None:
            return f"change {name} in {program}: {why}", None
        wrong = own[place : place + _span(own, place)]
        right = [f"{name}={_PLACEHOLDER}"] if "=" in own[place] else [name, _PLACEHOLDER]
        changed = [*own[:place], *right, *own[place + len(wrong) :]]
        return f"change `{shlex.join(wrong)}`: {why}; replace {_PLACEHOLDER} below", _joined(head, changed)
    if match := _MISSING.search(said):
        names = (match["names"] or match["click"]).strip()
        return f"add {names} after --, each with a value", None
    return "", None


def _refused(match: re.Match[str]) -> list[str]:
    """Returns the argument that a program does not know, and what followed it as far as the message tells."""
    one = match["option"] or match["other"] or (match["quoted"] or "").strip("'")
    return (match["several"] or "").split() or [one]


def _unknown(
    head: list[str], own: list[str], names: list[str], meant: str, program: str, *, listed: bool
) -> tuple[str, list[str] | None]:
    place = next(
        (i for i, word in enumerate(own) if word.partition("=")[0] == names[0].partition("=")[0]), None
    )
    if place is None:
        return f"change {names[0]} in {program}" + (f"; did you mean {meant}?" if meant else ""), None
    if meant:
        value = own[place].partition("=")[2]
        right = f"{meant}={value}" if value else meant
        changed = [*own[:place], right, *own[place + 1 :]]
        return f"change `{names[0]}`: the command below uses {meant} instead", _joined(head, changed)
    count = len(names) if listed and own[place : place + len(names)] == names else _span(own, place)
    gone = own[place : place + count]
    rest = own[:place] + own[place + count :]
    return (
        f"change `{shlex.join(gone)}`: the program does not know it; the command below leaves it out",
        _joined(head, rest),
    )


def _span(own: Sequence[str], place: int) -> int:
    """The number of words of an option, with its values."""
    if not own[place].startswith("-") or "=" in own[place]:
        return 1
    behind = next(
        (i for i, word in enumerate(own[place + 1 :]) if word.startswith("--")), len(own) - place - 1
    )
    return 1 + min(behind, 1)


def _joined(head: Sequence[str], own: Sequence[str]) -> list[str]:
    return [*head, *own] if own else list(head[:-1])
