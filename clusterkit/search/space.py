"""The space of a search: the values that each parameter may take. Pure."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clusterkit.errors import ConfigError
from clusterkit.submit.sweep import check_names, split_values, write_values

_WHOLE = re.compile(r"[+-]?\d[\d_]*")
_FORMS = "write LOW:HIGH, log:LOW:HIGH or VALUE,VALUE"


@dataclass(frozen=True)
class Between:
    """A parameter between two bounds, both included."""

    low: float
    high: float
    log: bool
    """Whether its logarithm is what is distributed evenly."""
    whole: bool
    """Whether it takes whole numbers only."""


Choice = tuple[str, ...]
"""The values of a parameter that takes one of a few."""


def read_space(texts: Sequence[str]) -> dict[str, str]:
    """Reads `--space`: each text is `NAME=VALUES`, or the path of a TOML file with such pairs.

    Raises:
        ConfigError: a text has another form, a name is repeated, or a file cannot be read.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        pairs = {name: values} if equals else _of_file(text)
        for parameter, its_values in pairs.items():
            if parameter in found:
                raise ConfigError(f"--space gives {parameter} twice")
            parse(parameter, its_values)
            found[parameter] = its_values
    check_names(list(found), "--space")
    return found


def parse(name: str, text: str) -> Between | Choice:
    """Parses the values of one parameter: `LOW:HIGH`, `log:LOW:HIGH` or `VALUE,VALUE`.

    An interval has whole numbers only if both bounds are written as such.

    Raises:
        ConfigError: the text has another form, or nothing to choose from.
    """
    log = text.startswith("log:")
    bounds = text.removeprefix("log:").split(":")
    choices = split_values(text, f"--space {name}={text}")
    if log and len(choices) > 1:
        raise ConfigError(f"--space {name}={text}: a logarithmic interval is one pair of bounds", hint=_FORMS)
    if len(bounds) != 2 or len(choices) > 1:
        if len(set(choices)) != len(choices) or len(choices) < 2:
            raise ConfigError(f"--space {name}={text}: not two different values or more", hint=_FORMS)
        return choices
    try:
        low, high = map(float, bounds)
    except ValueError:
        raise ConfigError(f"--space {name}={text}: a bound is not a number", hint=_FORMS) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise ConfigError(f"--space {name}={text}: the first bound is not below the second", hint=_FORMS)
    if log and low <= 0:
        raise ConfigError(f"--space {name}={text}: a logarithmic interval begins above 0")
    return Between(low, high, log, all(_WHOLE.fullmatch(bound.strip()) for bound in bounds))


def short(text: str) -> str:
    """Shortens a number to four digits; any other value stays as it is."""
    try:
        return text if text.isdigit() else f"{float(text):.4g}"
    except ValueError:
        return text


def _of_file(path: str) -> Mapping[str, str]:
    """Returns the pairs in a TOML file; a list stands for its values."""
    if not path.endswith(".toml"):
        raise ConfigError(f"--space {path}: neither NAME=VALUES nor a .toml file", hint=_FORMS)
    try:
        table = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from error
    return dict(_pairs(path, table))


def _pairs(path: str, table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Yields the parameters of a table, and those of its tables as `TABLE.PARAMETER`."""
    for key, value in table.items():
        name = above + key
        if isinstance(value, dict):
            yield from _pairs(path, value, f"{name}.")
        elif isinstance(value, str):
            yield name, value
        elif isinstance(value, list) and len(value) > 1:
            yield name, write_values(map(_written, value))
        else:
            raise ConfigError(
                f"{path}: {name} = {_written(value)} is not several values",
                hint='write e.g. lr = "1e-5:1e-2", lr = "log:1e-5:1e-2" or lr = [1e-5, 1e-2]',
            )


def _written(value: Any) -> str:
    """Returns a TOML value as text for the program: a list or table as JSON, any other value as in TOML."""
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value).lower() if isinstance(value, bool) else str(value)
