"""Tables of settings as commented TOML. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clusterkit.config.lines import Key, join_key, toml_value

_WIDTH = 110
_ALIGNED = 48
"""A longer key and value does not move the comments of the others."""


@dataclass(frozen=True)
class Entry:
    """One key, its value, and why it has it."""

    key: str
    value: object
    why: str = ""

    @property
    def code(self) -> str:
        """The line without its comment."""
        return f"{join_key((self.key,))} = {toml_value(self.value)}"


@dataclass(frozen=True)
class Table:
    """A table with a header of its own, and the comment above it."""

    key: Key
    entries: tuple[Entry, ...]
    head: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The table as it stands in a file. A comment too long for its line stands above it."""
        found = [f"# {text}" for text in self.head] + [f"[{join_key(self.key)}]"]
        width = max((len(one.code) for one in self.entries if len(one.code) <= _ALIGNED), default=0)
        for one in self.entries:
            line = f"{one.code:<{width}}  # {one.why}" if one.why else one.code
            found += [line] if len(line) <= _WIDTH else [f"# {one.key}: {one.why}", one.code]
        return found


def render(tables: Sequence[Table]) -> str:
    """Tables with an empty line between them, and a line break at the end."""
    return "\n\n".join("\n".join(table.lines()) for table in tables) + "\n"
