"""Reading, checking and unlocking recipes.

A recipe is `recipes/<name>.toml`; keys, types and ranges of an algorithm are in
`recipes/schemas/<kind of environments>/<algorithm>.toml`, for an algorithm has other keys on Meta-World's
`tasks` than on an `environment` of Gymnasium.
"""

from __future__ import annotations

import json
import math
import operator
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from trainer.recipe.algorithm import Algorithm
from trainer.recipe.environments import EnvironmentKind, environment_of
from trainer.recipe.errors import RecipeError, RecipeLocked
from trainer.recipe.registry import algorithm
from trainer.recipe.tables import DIRECTORY, nearest

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
        algorithm: its name in the registry.
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

    @property
    def environment(self) -> EnvironmentKind:
        """The kind of environments that it runs on."""
        return environment_of(self.values)

    @property
    def entry(self) -> Algorithm:
        """The algorithm, as it is on these environments."""
        return algorithm(self.algorithm).on(self.environment)

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
        schema = self.entry.schema(self.values)
        for key in (*overrides, *unlock):
            if key not in schema:
                raise RecipeError(f"recipe {self.name} has no value {key!r}{nearest(key, schema)}")
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
        self.entry.check(self.name, values)
        return replace(self, values=MappingProxyType(values), modified=MappingProxyType(modified))

    def as_json(self) -> dict[str, Any]:
        """Returns it as plain JSON types, as `run.json` and models keep it.

        Returns:
            `name`, `algorithm`, `values`, `modified`, and a label if there is one.
        """
        plain: dict[str, Any] = {"name": self.name, "algorithm": self.algorithm, "values": dict(self.values)}
        plain |= {"modified": dict(self.modified)} | ({"label": self.label} if self.label else {})
        decoded: dict[str, Any] = json.loads(json.dumps(plain))
        return decoded


def names() -> tuple[str, ...]:
    """Returns the names of all recipes, sorted."""
    return tuple(sorted(path.stem for path in DIRECTORY.glob("*.toml")))


def load(name: str) -> Recipe:
    """Reads and checks a recipe.

    Raises:
        RecipeError: no such recipe, or its file is not what the schema of its algorithm says.
    """
    if name not in names():
        near = nearest(name, names()) or f"; available: {', '.join(names())}"
        raise RecipeError(f"unknown recipe {name!r}{near}")
    return parse(name, (DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))


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
    schema = algorithm(table["algorithm"]).schema(table["values"])
    given = completed(table["algorithm"], table["values"])
    _same_keys(name, "value", given, schema)
    values = {key: _checked(key, given[key], rule, name) for key, rule in schema.items()}
    frozen = MappingProxyType(values)
    recipe = Recipe(name, table["algorithm"], table["description"], table["source"], frozen, label=label)
    recipe.entry.check(name, values)
    return recipe


def completed(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a recipe's values, with those that its file does not name at their defaults.

    Args:
        name: the algorithm's.
        values: of a recipe.

    Raises:
        RecipeError: an unknown algorithm.
    """
    rules = algorithm(name).schema(values).items()
    return {key: rule["default"] for key, rule in rules if "default" in rule} | dict(values)


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
        return tuple(_checked(key, item_value, item, recipe) for item_value in value)
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


def _same_keys(name: str, what: str, given: Mapping[str, Any], wanted: Collection[str]) -> None:
    for key in given:
        if key not in wanted:
            raise RecipeError(f"recipe {name}: unknown {what} {key!r}{nearest(key, wanted)}")
    missing = [key for key in wanted if key not in given]
    if missing:
        raise RecipeError(f"recipe {name}: missing {what} {', '.join(sorted(missing))}")
