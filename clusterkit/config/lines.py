"""Lines of TOML: writes keys, values and commented tables, and finds the line of each key in a text. Pure.

The standard library's parser neither writes TOML nor reports lines, and tomlkit takes long to import.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass

Key = tuple[str, ...]

_WIDTH = 110
_ALIGNED = 48
"""Longest key and value that affect the alignment of comments."""
_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEY = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_HEADER = re.compile(rf"\s*\[\s*({_PART}(?:\s*\.\s*{_PART})*)\s*\]")


def split_key(dotted: str) -> Key:
    """The parts of a dotted TOML key, e.g. `gpus."1g.10gb"` -> ("gpus", "1g.10gb").

    Raises:
        ValueError: it is not a TOML key.
    """
    if not _KEY.fullmatch(f"{dotted} ="):
        raise ValueError(f"{dotted!r} is not a TOML key")
    try:
        node: object = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        raise ValueError(f"{dotted!r} is not a TOML key") from None
    parts: list[str] = []
    while isinstance(node, dict):
        ((part, node),) = node.items()
        parts.append(part)
    return tuple(parts)


def join_key(key: Key) -> str:
    """The dotted form of a key, quoted where TOML needs it."""
    return ".".join(part if _BARE.fullmatch(part) else quoted(part) for part in key)


def quoted(text: str) -> str:
    """A TOML basic string; unprintable characters are escaped."""
    return '"' + "".join(map(_escaped, text)) + '"'


def toml_value(value: object) -> str:
    """A value in TOML, on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{join_key((key,))} = {toml_value(one)}' for key, one in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else quoted(str(value))


def _escaped(char: str) -> str:
    if char in '"\\':
        return f"\\{char}"
    if char.isprintable():
        return char
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


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
class WrittenTable:
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


def key_lines(text: str) -> dict[Key, int]:
    """Line numbers (from 1) of all tables and keys of a valid TOML text.

    A table without a header has the line of the first header below it. Keys inside an inline table are not
    listed; they are on the line of the table's own key or below.
    """
    found: dict[Key, int] = {}
    lines = text.replace("\r\n", "\n").split("\n")  # other separators of Unicode may stand within a line
    table: Key = ()
    number = 0
    while number < len(lines):
        if header := _HEADER.match(lines[number]):
            table = split_key(header[1])
            for end in range(1, len(table) + 1):
                found.setdefault(table[:end], number + 1)
        elif lines[number].lstrip().startswith("[["):
            table = ()
        elif key := _KEY.match(lines[number]):
            found.setdefault((*table, *split_key(key[1])), number + 1)
            number = _last_line_of_value(lines, number)
        number += 1
    return found


def _last_line_of_value(lines: list[str], first: int) -> int:
    """Index of the line that ends the value begun on line `first`: where the text first parses alone."""
    for last in range(first, len(lines)):
        try:
            tomllib.loads("\n".join(lines[first : last + 1]))
        except tomllib.TOMLDecodeError:
            continue
        return last
    return first
