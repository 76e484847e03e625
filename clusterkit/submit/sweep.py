"""The runs of a sweep: the grid of values and each value's effect on a run. Pure: no I/O.

The name of a value decides its effect: `seed`, `profile`, `recipe` and `total_steps` change the run itself, a
recipe value's name changes the recipe (as with `--set`), and any other name goes to the program, through
`{name}` in its arguments and an environment variable.

In a list of values, `VALUE,VALUE`, commas in brackets and quotes belong to a value. A value is the text as
written; only quotes around a whole value are removed, as a shell does, so that any text can be a value.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import ConfigError
from clusterkit.runs.program import PLACES, fill, has_place, literal, variable_of
from clusterkit.runs.recipe_names import load, resolve, sibling
from clusterkit.runs.recipe_names import meant as named

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

MOST_RUNS = 10_000
"""Maximum number of runs in a sweep; a larger number is probably a typing error."""
OF_THE_RUN = ("seed", "profile", "recipe", "total_steps")
POINT = "point"
"""Placeholder in the arguments for the number of a point that is not of a grid."""
_FILLED_LATER = ("seed", "total_steps")
"""Placeholders in a user's own arguments that `plan` fills in, swept or not."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|(?P<quote>['"])|(?P<open>[(\[{])|(?P<close>[)\]}])"""
    r"|(?P<comma>,)|(?P<other>[^'\"(\[{)\]},]+)",
    re.DOTALL,
)


@dataclass(frozen=True)
class SweepAxis:
    """One name and its values."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Meaning:
    """The effect of one point's values on a run."""

    profile: Profile
    seed: int | None
    overrides: Mapping[str, str]
    unlock: tuple[str, ...]
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    unplaced: tuple[str, ...]
    """Names, except the seed, that the user's own program can only read from the environment."""


def axes(seeds: str | None, sweeps: Sequence[str]) -> tuple[SweepAxis, ...]:
    """Parses `--seeds` and `--sweep` into axes; the last one varies fastest.

    Args:
        seeds: `42..51`, `1,2,5` or both mixed; None for none.
        sweeps: `name=value,value`, with values as `split_values` reads them.

    Raises:
        ConfigError: a text does not have this form, or a name or value is repeated.
    """
    found = []
    for text in sweeps:
        name, equals, listed = text.partition("=")
        if not equals:
            raise ConfigError(f"--sweep {text}: not of the form name=value,value")
        values = (
            _seeds(listed, f"--sweep {text}") if name == "seed" else split_values(listed, f"--sweep {text}")
        )
        found.append(SweepAxis(name, values))
    if seeds is not None:
        found.append(SweepAxis("seed", _seeds(seeds, f"--seeds {seeds}")))
    names = [axis.name for axis in found]
    check_names(names, "--sweep")
    for axis in found:
        if names.count(axis.name) > 1:
            raise ConfigError(f"{axis.name} is swept twice", hint="give all of its values in one --sweep")
        twice = [value for value in axis.values if axis.values.count(value) > 1]
        if twice:
            raise ConfigError(f"{axis.name} is {twice[0]!r} twice: the two runs would be the same")
    size = 1
    for axis in found:
        size *= len(axis.values)
    if size > MOST_RUNS:
        raise ConfigError(
            f"this sweep has {size:,} runs, and at most {MOST_RUNS:,} are allowed",
            hint="submit some of its values at a time",
        )
    # Runs of one profile stay adjacent: their requests are equal, so they share a job array.
    return tuple(sorted(found, key=lambda axis: axis.name != "profile"))


def check_names(names: Sequence[str], option: str) -> None:
    """Checks names of swept values.

    Args:
        names: the names.
        option: the option that gave them, for messages.

    Raises:
        ConfigError: a text cannot be a name, or two names share an environment variable.
    """
    for place, name in enumerate(names):
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"{option} {name}=...: {name!r} cannot be a name",
                hint="a name begins with a letter or `_` and has letters, digits, `_`, `.` and `-`",
            )
        for other in names[:place]:
            if other != name and variable_of(other) == variable_of(name):
                raise ConfigError(
                    f"{option}: {other} and {name} share the environment variable {variable_of(name)}",
                    hint="rename one of them; the option that a placeholder stands behind can keep its name",
                )


def grid(over: Sequence[SweepAxis]) -> list[dict[str, str]]:
    """Returns every combination of values, by name; a single empty one without axes."""
    names = [axis.name for axis in over]
    return [
        dict(zip(names, values, strict=True)) for values in itertools.product(*(axis.values for axis in over))
    ]


def meaning(
    values: Mapping[str, str],
    profile: Profile,
    *,
    own_program: Sequence[str] | None,
    overrides: Mapping[str, str],
    unlock: Sequence[str],
    arguments: Sequence[str],
) -> Meaning:
    """Resolves one point's values.

    `task` chooses the recipe of that task if one exists (`...-mt10` becomes `...-mt50`), and otherwise sets
    the recipe's `tasks`; `lr` means every learning rate of the recipe.

    Args:
        values: the point's values, by name.
        profile: the run's profile, or the point's own if profiles are swept.
        own_program: the user's own program, regardless of the profile's recipe; None means the bundled
            trainer.
        overrides: recipe values from the command line, by name.
        unlock: names of recipe values that may change, possibly including `task` and `lr`.
        arguments: arguments from the command line; in them and in the program, `{name}` stands for a swept
            value.

    Raises:
        ConfigError: a value does not fit its name, or a recipe is chosen for a program without one.
    """
    changed = profile
    rest = {name: text for name, text in values.items() if name not in OF_THE_RUN}
    if "total_steps" in values:
        changed = changed.model_copy(update={"total_steps": _count(values["total_steps"])})
    trains = not own_program and profile.recipe is not None
    set_values = dict(overrides)
    may_change = list(unlock)
    if "recipe" in values:
        if not trains:
            raise ConfigError("--sweep recipe=... chooses a recipe, but this run does not use one")
        changed = changed.model_copy(update={"recipe": values["recipe"]})
    if trains and changed.recipe is not None:
        if "task" in values and "task" in overrides:
            raise ConfigError("--sweep task and --set task both choose the task")
        chosen, set_values, unlocked = resolve(changed.recipe, overrides, unlock)
        recipe, may_change = load(chosen), list(unlocked)
        changed = changed.model_copy(update={"recipe": chosen})
        if "task" in rest and (other := sibling(recipe, rest["task"])) is not None:
            recipe = other
            changed = changed.model_copy(update={"recipe": recipe.name})
            may_change = [name for name in may_change if name != "tasks" or "tasks" in unlock]
            del rest["task"]
        for name in list(rest):
            if meant := named(recipe, name):
                if taken := sorted(set(meant) & set(set_values)):
                    raise ConfigError(f"--sweep {name} and --set {taken[0]} both change {taken[0]}")
                set_values |= dict.fromkeys(meant, rest.pop(name))
        may_change = [each for name in may_change for each in named(recipe, name) or [name]]
    later = () if trains else _FILLED_LATER
    # a value that reads like a placeholder is none, here or when the run's own are filled
    now = {
        name: text if trains else literal(text, PLACES) for name, text in values.items() if name not in later
    }
    placed = {name for name in values if has_place((*arguments, *(own_program or ())), name)}
    if own_program and placed & now.keys():
        changed = changed.model_copy(update={"program": fill(own_program, now)})
    if trains and changed.recipe is not None and (unknown := [name for name in rest if name not in placed]):
        known = ", ".join(sorted(load(changed.recipe).values))
        raise ConfigError(
            f"--sweep {unknown[0]}=...: recipe {changed.recipe} has no value {unknown[0]!r}",
            hint=f"it has {known}; besides these, {', '.join(OF_THE_RUN)} can be swept",
        )
    to_program = [*rest, "total_steps"] if "total_steps" in values else list(rest)
    unplaced = () if trains else tuple(name for name in to_program if name not in placed)
    return Meaning(
        profile=changed,
        seed=_count(values["seed"], least=0) if "seed" in values else None,
        overrides=set_values,
        unlock=tuple(dict.fromkeys(may_change)),
        arguments=fill(arguments, now),
        env={variable_of(name): text for name, text in values.items()},
        unplaced=unplaced,
    )


def _seeds(text: str, option: str) -> tuple[str, ...]:
    return tuple(str(seed) for part in text.split(",") for seed in _seed_range(part.strip(), option))


def _seed_range(part: str, option: str) -> Iterator[int]:
    match = _RANGE.fullmatch(part)
    if match is None and not re.fullmatch(r"\d{1,18}", part):
        raise ConfigError(f"{option}: {part!r} is not a seed", hint="write e.g. 42..51 or 1,2,5")
    first, last = (int(match[1]), int(match[2])) if match else (int(part), int(part))
    if last < first:
        raise ConfigError(f"{option}: {part} counts backwards", hint=f"write {last}..{first}")
    if last - first >= MOST_RUNS:
        raise ConfigError(
            f"{option}: {last - first + 1:,} seeds, and at most {MOST_RUNS:,} are allowed",
            hint=f"submit fewer at a time, e.g. {first}..{first + 9}",
        )
    yield from range(first, last + 1)


def _count(text: str, least: int = 1) -> int:
    cleaned = text.replace("_", "")
    if not re.fullmatch(r"\d{1,18}", cleaned) or int(cleaned) < least:
        raise ConfigError(f"{text!r} is not a whole number of at least {least}")
    return int(cleaned)


def split_values(text: str, option: str) -> tuple[str, ...]:
    r"""Splits a list of values.

    >>> split_values("(0.9,0.999), {a: [1,2]},'a,b',x['a,b'],\"it's\"", "--sweep x")
    ('(0.9,0.999)', '{a: [1,2]}', 'a,b', "x['a,b']", "it's")

    Args:
        text: the values, separated by commas.
        option: what the user typed, for messages.

    Raises:
        ConfigError: a value is missing, or a bracket or quote has no counterpart.
    """
    written = _written(text, option)
    if not all(written):
        raise ConfigError(f"{option}: a value is missing", hint="write VALUE,VALUE; '' is an empty value")
    return tuple(map(_bare, written))


def write_values(values: Iterable[str]) -> str:
    """Returns the text that `split_values` splits into these values."""
    return ",".join(map(_quoted, values))


def _written(text: str, option: str) -> list[str]:
    """Returns the values with their quotes."""
    values, value = [], ""
    brackets: list[str] = []
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token[0]
        if kind == "comma" and not brackets:
            values.append(value.strip())
            value = ""
            continue
        value += word
        if kind == "open":
            brackets.append(word)
        elif kind == "quote" or (kind == "close" and (not brackets or _CLOSING[brackets.pop()] != word)):
            raise _unbalanced(option, word)
    if brackets:
        raise _unbalanced(option, brackets[-1])
    return [*values, value.strip()]


def _unbalanced(option: str, mark: str) -> ConfigError:
    quote = '"' if mark == "'" else "'"
    what = "quote" if mark in "'\"" else "bracket"
    return ConfigError(
        f"{option}: the {what} {mark} has no counterpart",
        hint=f"in a value that is meant so, quote the value: {quote}VALUE{quote}; "
        "commas in (), [], {} and quotes belong to a value, e.g. (0.9,0.999),(0.5,0.9)",
    )


def _bare(value: str) -> str:
    """Returns a value without the quotes around it; in them, a backslash precedes a quote or a backslash."""
    token = _TOKEN.fullmatch(value)
    if token is None or token["quoted"] is None:
        return value
    return re.sub(rf"\\([\\{value[0]}])", r"\1", value[1:-1])


def _quoted(value: str) -> str:
    """Returns a value as a list of values holds it, in quotes only where it needs them."""
    try:
        if split_values(value, "") == (value,):
            return value
    except ConfigError:
        pass
    quote = '"' if "'" in value and '"' not in value else "'"
    return quote + re.sub(rf"([\\{quote}])", r"\\\1", value) + quote
