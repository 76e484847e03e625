"""The space of a search: the values that each parameter may take. Pure."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ConfigError
from clusterkit.runs.sweep import NAME, split_values

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
        for each, told in pairs.items():
            if not NAME.fullmatch(each):
                raise ConfigError(f"--space {text}: {each!r} is no name of a parameter", hint=_FORMS)
            if each in found:
                raise ConfigError(f"--space gives {each} twice")
            parse(each, told)
            found[each] = told
    return found


def parse(name: str, text: str) -> Between | Choice:
    """Parses the values of one parameter: `LOW:HIGH`, `log:LOW:HIGH` or `VALUE,VALUE`.

    An interval has whole numbers only if both bounds are written as such.

    Raises:
        ConfigError: the text has another form, or nothing to choose from.
    """
    log = text.startswith("log:")
    bounds = text.removeprefix("log:").split(":")
    if len(bounds) != 2:
        choices = split_values(text, f"--space {name}={text}")
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
    return {name: _written(value) for name, value in table.items()}


def _written(value: object) -> str:
    """Returns a TOML value as on the command line."""
    if isinstance(value, list):
        return ",".join(map(_written, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
