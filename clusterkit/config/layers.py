"""Merges settings from layers; every value keeps its origin.

A layer is one source (a file, the built-in values, the command line). Later layers override earlier ones key
by key; lists are replaced. A profile with `extends` inherits unset values from the profile it names.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from clusterkit.config.lines import Key, join_key, key_lines
from clusterkit.errors import ConfigError

Table = dict[str, Any]

BUILT_IN = "built-in"
COMMAND_LINE = "command line"
"""Labels of the layers that are no file."""


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    label: str
    """"built-in", "command line" or the file's name as the user would write it."""
    line: int | None = None

    def __str__(self) -> str:
        return self.label if self.line is None else f"{self.label}:{self.line}"


DEFAULT = Origin("default")
"""The origin of a model's default value."""


@dataclass(frozen=True)
class Layer:
    """One source of settings.

    Args:
        label: its name in messages.
        data: its values, in the form of a settings document.
        file: the file it was read from.
        text: that file's text, for line numbers.
        prefix: the key under which the file's top level was placed.
    """

    label: str
    data: Mapping[str, Any]
    file: Path | None = None
    text: str = ""
    prefix: Key = ()

    @cached_property
    def _lines(self) -> dict[Key, int]:
        return {(*self.prefix, *key): line for key, line in key_lines(self.text).items()}

    def origin(self, key: Key) -> Origin:
        """Where this layer sets `key`: the line of the key or of its nearest table."""
        for end in range(len(key), len(self.prefix), -1):
            if line := self._lines.get(key[:end]):
                return Origin(self.label, line)
        return Origin(self.label)


@dataclass(frozen=True)
class Source:
    """The layer and key that a value came from; with `extends` the key differs."""

    layer: Layer
    key: Key

    @property
    def origin(self) -> Origin:
        """The file and line of the value."""
        return self.layer.origin(self.key)


@dataclass(frozen=True)
class Merged:
    """All layers as one document."""

    data: Table
    sources: Mapping[Key, Source]

    def origin(self, key: Key) -> Origin:
        """Where `key` or its table was set; DEFAULT if neither was."""
        for end in range(len(key), 0, -1):
            if source := self.sources.get(key[:end]):
                return source.layer.origin((*source.key, *key[end:]))
        return DEFAULT


def merge(layers: Sequence[Layer], others: Iterable[str] = ()) -> Merged:
    """Merges all layers and resolves `extends`.

    Args:
        layers: weakest first.
        others: names of further profiles, for hints.

    Raises:
        ConfigError: a profile extends an unknown profile or, indirectly, itself.
    """
    data: Table = {}
    sources: dict[Key, Source] = {}
    for layer in layers:
        _overlay(data, layer.data, (), layer, sources)
    profiles = data.get("profiles")
    if isinstance(profiles, dict):
        for name in list(profiles):
            _inherit(profiles, name, sources, (), others)
    return Merged(data, sources)


def _overlay(
    onto: Table, table: Mapping[str, Any], at: Key, layer: Layer, sources: dict[Key, Source]
) -> None:
    for name, value in table.items():
        key = (*at, name)
        sources[key] = Source(layer, key)
        if isinstance(value, Mapping):
            if not isinstance(onto.get(name), dict):
                onto[name] = {}
            _overlay(onto[name], value, key, layer, sources)
        else:
            onto[name] = value


def _inherit(
    profiles: Table, name: str, sources: dict[Key, Source], children: tuple[str, ...], others: Iterable[str]
) -> None:
    """Fills a profile from the one it extends, which is filled first; `extends` is removed."""
    profile = profiles[name]
    if not isinstance(profile, dict) or "extends" not in profile:
        return
    key = ("profiles", name, "extends")
    where = f"{sources[key].origin}: {join_key(key)}"
    base = profile["extends"]
    if not isinstance(base, str) or base not in profiles:
        hint = nearest(base, [*profiles, *others]) if isinstance(base, str) else "write the name of a profile"
        raise ConfigError(f"{where}: there is no profile {base!r}", hint=hint)
    if base in (*children, name):
        raise ConfigError(
            f"{where}: {' extends '.join((*children, name, base))}",
            hint="remove one `extends`; to change a built-in profile, list only the keys to change",
        )
    _inherit(profiles, base, sources, (*children, name), others)
    del profile["extends"]
    if isinstance(profiles[base], dict):
        _fill(profile, profiles[base], ("profiles", name), ("profiles", base), sources)


def _fill(onto: Table, base: Table, at: Key, base_at: Key, sources: dict[Key, Source]) -> None:
    for name, value in base.items():
        if name not in onto:
            onto[name] = {} if isinstance(value, dict) else value
            sources[(*at, name)] = sources[(*base_at, name)]
        if isinstance(value, dict) and isinstance(onto[name], dict):
            _fill(onto[name], value, (*at, name), (*base_at, name), sources)


def nearest(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    """A hint: the most similar valid names first, then all of them."""
    known = ", ".join(sorted(names)) or "none"
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"did you mean {close[0]}? available: {known}" if close else f"available: {known}"
