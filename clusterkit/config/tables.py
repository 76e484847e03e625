"""Tables of settings as commented TOML. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.config.lines import Key, join_key, toml_value

_WIDTH = 110
_ALIGNED = 48
"""Longest key and value that affect the alignment of comments."""


@dataclass(frozen=True)
class Entry:
    """A key, its value, and the reason for it."""

    key: str
    value: object
    why: str = ""
    above: str = ""
    """A comment on a line of its own, above the key."""

    @property
    def code(self) -> str:
        """The line without its comment."""
        return f"{join_key((self.key,))} = {toml_value(self.value)}"


@dataclass(frozen=True)
class Table:
    """A table with its header and the comment above it."""

    key: Key
    entries: tuple[Entry, ...]
    head: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The table's lines in a file."""
        return [*(f"# {text}" for text in self.head), f"[{join_key(self.key)}]", *self.key_lines()]

    def key_lines(self) -> list[str]:
        """Its keys' lines in a file. A comment too long for its line is put above it."""
        found = []
        width = max((len(one.code) for one in self.entries if len(one.code) <= _ALIGNED), default=0)
        for one in self.entries:
            line = f"{one.code:<{width}}  # {one.why}" if one.why else one.code
            found += [f"# {one.above}"] if one.above else []
            found += [line] if len(line) <= _WIDTH else [f"# {one.key}: {one.why}", one.code]
        return found
