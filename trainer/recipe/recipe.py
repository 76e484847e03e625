"""Reading, checking and unlocking recipes.

A recipe is `recipes/<name>.toml`; keys, types and ranges of an algorithm are in
`recipes/schemas/<algorithm>.toml`, the task sets of a benchmark in `recipes/benchmarks/<benchmark>.toml`.
A SAC recipe with an `environment` runs on that, not on Meta-World's tasks, and a PPO recipe with `tasks` on
those: each has other keys (`recipes/schemas/gymnasium/sac.toml`, `recipes/schemas/metaworld/ppo.toml`).
"""

from __future__ import annotations

import difflib
import json
import math
import operator
import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trainer.recipe.errors import RecipeError, RecipeLocked
from trainer.recipe.kinds import on_metaworld

_DIRECTORY = Path(__file__).resolve().parent.parent / "recipes"
_READERS: Mapping[str, Any] = {
    "int": int,
    "float": float,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "text": str,
}
_TYPES: Mapping[str, Any] = {"int": int, "float": (int, float), "bool": bool, "text": str}
_BOUNDS = {"min": operator.ge, "max": operator.le, "above": operator.gt, "below": operator.lt}
_WORDS = {"min": "at least", "max": "at most", "above": "above", "below": "below"}


@dataclass(frozen=True)
class Recipe:
    """One recipe, possibly with unlocked changes.

    Attributes:
        name: the file's name without `.toml`.
        algorithm: `sac`, `ppo` or `a2c`.
        description: one line for a table.
        source: where the values come from.
        values: every key of the algorithm's schema; lists are tuples. Read-only.
        modified: `{key: [locked, used]}` of what differs from the file. Read-only.
        label: a word that stays with every run, such as `beyond-paper`; empty for most.
    """

    name: str
    algorithm: str
    description: str
    source: str
    values: Mapping[str, Any]
    modified: Mapping[str, list[Any]] = field(default_factory=lambda: MappingProxyType({}))
    label: str = ""

    def override(self, overrides: Mapping[str, str], unlock: Collection[str] = ()) -> Recipe:
        """Returns the recipe with some values replaced.

        Args:
            overrides: key to text, as typed on a command line, read by the key's type (lists as `256,256` or
                as JSON). The locked value itself is no modification and needs no unlocking.
            unlock: the keys whose lock is lifted on purpose.

        Raises:
            RecipeError: an unknown key in either argument, or a text that is no valid value.
            RecipeLocked: a key changes that `unlock` does not name.
        """
        schema = _schema(self.algorithm, self.values)
        for key in (*overrides, *unlock):
            if key not in schema:
                raise RecipeError(f"recipe {self.name} has no value {key!r}{_nearest(key, schema)}")
        values = dict(self.values)
        modified = {key: list(pair) for key, pair in self.modified.items()}
        for key, text in overrides.items():
            used = _checked(key, _parse(key, text, schema[key]), schema[key], self.name)
            locked = modified[key][0] if key in modified else values[key]
            if used != locked and key not in unlock:
                raise RecipeLocked(
                    f"{key} is locked to {json.dumps(locked)} by recipe {self.name}; --unlock {key} allows "
                    f"{json.dumps(used)} and marks the run as modified"
                )
            values[key] = used
            modified.pop(key, None)
            if used != locked:
                modified[key] = [locked, used]
        _check_together(self.name, self.algorithm, values)
        return replace(self, values=MappingProxyType(values), modified=MappingProxyType(modified))

    def as_json(self) -> dict[str, Any]:
        """Returns `name`, `values`, `modified` and a label as plain JSON types, as `run.json` keeps them."""
        plain: dict[str, Any] = {"name": self.name, "values": dict(self.values)}
        plain |= {"modified": dict(self.modified)} | ({"label": self.label} if self.label else {})
        decoded: dict[str, Any] = json.loads(json.dumps(plain))
        return decoded


def names() -> tuple[str, ...]:
    """Returns the names of all recipes, sorted."""
    return tuple(sorted(path.stem for path in _DIRECTORY.glob("*.toml")))


def load(name: str) -> Recipe:
    """Reads and checks a recipe.

    Raises:
        RecipeError: no such recipe, or its file is not what the schema of its algorithm says.
    """
    if name not in names():
        near = _nearest(name, names()) or f"; there are {', '.join(names())}"
        raise RecipeError(f"unknown recipe {name!r}{near}")
    return parse(name, (_DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))


def parse(name: str, text: str) -> Recipe:
    """Reads a recipe from TOML text; every key of the schema without a default must be there, and no other.

    Raises:
        RecipeError: naming the recipe and the key at fault.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"recipe {name} is not valid TOML: {error}") from error
    label = table.setdefault("label", "")
    _same_keys(name, "entry", table, ("algorithm", "description", "source", "label", "values"))
    schema = _schema(table["algorithm"], table["values"])
    given = completed(table["algorithm"], table["values"])
    _same_keys(name, "value", given, schema)
    values = {key: _checked(key, given[key], rule, name) for key, rule in schema.items()}
    _check_together(name, table["algorithm"], values)
    frozen = MappingProxyType(values)
    return Recipe(name, table["algorithm"], table["description"], table["source"], frozen, label=label)


def completed(algorithm: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns values with what a recipe's file or a run of an earlier version does not name at its default.

    Raises:
        RecipeError: an unknown algorithm.
    """
    rules = _schema(algorithm, values).items()
    return {key: rule["default"] for key, rule in rules if "default" in rule} | dict(values)


def task_names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Expands benchmark sets (`MT10`, `MT25`, `MT50`) and short names (`reach`) to Meta-World's full names.

    The order given is kept, since it is the order of the task ids.

    Raises:
        RecipeError: an unknown task (with the nearest names), one named twice, or none.
    """
    sets = _read("benchmarks", "metaworld")
    found: list[str] = []
    for name in [value] if isinstance(value, str) else value:
        full = name if name.endswith("-v3") else f"{name}-v3"
        if name not in sets and full not in sets["MT50"]:
            raise RecipeError(f"unknown Meta-World task {name!r}{_nearest(full, [*sets, *sets['MT50']])}")
        found += sets.get(name, [full])
    twice = sorted({name for name in found if found.count(name) > 1})
    if twice or not found:
        raise RecipeError(f"tasks named twice: {', '.join(twice)}" if twice else "no task is named")
    return tuple(found)


def _schema(algorithm: str, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    if algorithm not in (known := [path.stem for path in (_DIRECTORY / "schemas").glob("*.toml")]):
        raise RecipeError(f"unknown algorithm {algorithm!r}{_nearest(str(algorithm), known)}")
    own = {"sac": "environment", "ppo": "tasks"}  # what a recipe on the other kind of environments has
    other = "schemas/gymnasium" if algorithm == "sac" else "schemas/metaworld"
    return _read(other if own.get(algorithm) in values else "schemas", algorithm)


@cache
def _read(folder: str, name: str) -> dict[str, Any]:
    return tomllib.loads((_DIRECTORY / folder / f"{name}.toml").read_text(encoding="utf-8"))


def _checked(key: str, value: Any, rule: Mapping[str, Any], recipe: str) -> Any:
    """Returns the value in its canonical type, or raises with the rule it breaks."""
    fault = f"recipe {recipe}: {key} = {json.dumps(value, default=str)}"
    kind = rule["type"]
    if value in (words := rule.get("words", ())):
        return value
    if kind.endswith("s"):
        if not isinstance(value, list | tuple) or not value:
            raise RecipeError(f"{fault} must be a list that is not empty")
        item = {**rule, "type": kind[:-1]}
        return tuple(_checked(key, each, item, recipe) for each in value)
    # For Python, not for us, True is an int.
    if not isinstance(value, _TYPES[kind]) or isinstance(value, bool) != (kind == "bool"):
        expected = "an int" if kind == "int" else f"a {kind}"
        raise RecipeError(f"{fault} must be {' or '.join((expected, *words))}")
    if "choices" in rule and value not in rule["choices"]:
        raise RecipeError(f"{fault} must be one of {', '.join(rule['choices'])}")
    for bound, holds in _BOUNDS.items():
        if bound in rule and not holds(value, rule[bound]):
            raise RecipeError(f"{fault} must be {_WORDS[bound]} {rule[bound]}")
    if kind != "float":
        return value
    if not math.isfinite(number := float(value)):
        raise RecipeError(f"{fault} must be finite")
    return number


def _check_together(name: str, algorithm: str, values: Mapping[str, Any]) -> None:
    """Checks what no single value shows."""
    if algorithm != "sac" and "tasks" not in values:
        return  # what a batch must divide depends on the environments too, see `batches`
    if algorithm != "sac":
        _check_pairs(
            name,
            ("log_std_min", "log_std_max", values["log_std_min"], values["log_std_max"]),
            ("evaluation_goals", "goals_per_task", values["evaluation_goals"], values["goals_per_task"]),
        )
        task_names(values["tasks"])
        return
    tasks = len(task_names(values["tasks"])) if on_metaworld(values) else 1
    goals = values.get("evaluation_goals", 0), values.get("goals_per_task", 0)  # only Meta-World has any
    _check_pairs(
        name,
        ("the number of tasks", "batch_size", tasks, values["batch_size"]),
        ("the number of tasks", "warmup_steps", tasks, values["warmup_steps"]),
        ("batch_size", "replay_capacity", values["batch_size"], values["replay_capacity"]),
        ("log_std_min", "log_std_max", values["log_std_min"], values["log_std_max"]),
        ("evaluation_goals", "goals_per_task", *goals),
    )
    if values.get("heads") == "one-hot" and not values["one_hot"] and tasks > 1:
        raise RecipeError(
            f"recipe {name}: one_hot = false leaves the task unknown without multi-head networks"
        )
    _check_critics(name, values)


def _check_pairs(name: str, *pairs: tuple[str, str, float, float]) -> None:
    for small, large, low, high in pairs:
        if low > high:
            raise RecipeError(f"recipe {name}: {large} = {high} is less than {small} ({low})")


def _check_critics(name: str, values: Mapping[str, Any]) -> None:
    if values.get("critic_network") == "residual":
        if len(set(values["critic_hidden"])) > 1:
            raise RecipeError(
                f"recipe {name}: critic_network = residual needs the same width all through critic_hidden"
            )
        if not values["layer_norm"]:
            raise RecipeError(f"recipe {name}: critic_network = residual needs layer_norm = true")
    if values.get("normalize_rewards") == "returns" and values["reward_scale"] != 1.0:
        raise RecipeError(f"recipe {name}: normalize_rewards = returns needs reward_scale = 1")
    if values.get("value_bins") == 1:
        raise RecipeError(f"recipe {name}: value_bins = 1 tells nothing; 0 is off, 101 is usual")


def _parse(key: str, text: str, rule: Mapping[str, Any]) -> Any:
    kind = rule["type"]
    if text.strip() in rule.get("words", ()):
        return text.strip()
    try:
        if kind.endswith("s"):
            if text.lstrip().startswith("["):
                return json.loads(text)
            return [
                _parse(key, part, {**rule, "type": kind[:-1]}) for part in text.split(",") if part.strip()
            ]
        if kind == "int" and "e" in text.lower():
            return int(float(text)) if float(text).is_integer() else float(text)
        return _READERS[kind](text.strip())
    except (ValueError, KeyError) as error:
        readable = " or ".join((kind, *rule.get("words", ())))
        raise RecipeError(f"{key} = {text!r} cannot be read as {readable}") from error


def _same_keys(name: str, what: str, found: Mapping[str, Any], wanted: Collection[str]) -> None:
    for key in found:
        if key not in wanted:
            raise RecipeError(f"recipe {name}: unknown {what} {key!r}{_nearest(key, wanted)}")
    missing = [key for key in wanted if key not in found]
    if missing:
        raise RecipeError(f"recipe {name}: missing {what} {', '.join(sorted(missing))}")


def _nearest(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
