"""Edits settings files, leaving everything else as the user wrote it. Pure.

tomlkit keeps comments, order, spaces and quotes, but does not say to which table the lines above a header
belong. Here they belong to that header, so that a table is inserted and removed with the comment above it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AbstractTable, AoT, Comment, Null, Whitespace
from tomlkit.items import Table as HeaderTable

from clusterkit.config.lines import Entry, Key, WrittenTable, join_key, toml_value
from clusterkit.errors import ConfigError

_FIGURE = re.compile(r"\S*\d\S*")


@dataclass
class _Header:
    """A table's header."""

    key: Key
    table: HeaderTable
    above: str
    """Empty lines, comments and spaces above the header."""
    new: str = ""
    """New tables to insert above it."""


class Editor:
    """The text of a settings file, and changes to it."""

    def __init__(self, text: str, about: Key, *, hint: str) -> None:
        """Parse a file's text, valid TOML.

        Args:
            text: the file's; empty for a new one.
            about: the table to change, for error messages.
            hint: of that error: what to do if the file cannot be changed.

        Raises:
            ConfigError: tomlkit cannot preserve the text.
        """
        self._refusal = ConfigError(
            f"[{join_key(about)}] cannot be edited automatically in its present form; nothing was written",
            hint=hint,
        )
        self._end = "\r\n" if "\r\n" in text and text.count("\r\n") == text.count("\n") else "\n"
        plain = text.replace(self._end, "\n")
        plain += "\n" if plain and not plain.endswith("\n") else ""
        self._meaning: dict[str, Any] = tomllib.loads(plain)
        try:
            self._document = tomlkit.parse(plain)
        except TOMLKitError as error:
            raise self._refusal from error
        if self._document.as_string() != plain:  # an array of tables with another table in between
            raise self._refusal
        above: list[tuple[Container, int]] = []
        self._headers = list(_headers(self._document, (), above))
        self._tail = _taken(above)

    def value(self, key: Key) -> Any:
        """The file's value of a key, in any form; None if absent."""
        node: Any = self._meaning
        for part in key:
            node = node.get(part) if isinstance(node, dict) else None
        return node

    def add_missing(self, table: WrittenTable) -> None:
        """Add missing keys to a table; a missing table is put first in the file."""
        new = tuple(one for one in table.entries if self.value((*table.key, one.key)) is None)
        if not (places := _places(self._document, table.key)):
            self.insert(table, first=True)
            return
        comments = ""
        for name, item in tomlkit.parse("\n".join(WrittenTable((), new).key_lines()) + "\n").body:
            if name is None:
                comments += item.as_string()
            elif isinstance(places[0], HeaderTable):
                item.trivia.indent, comments = comments, ""
                places[0].raw_append(name, item)
            else:
                places[0].append(name, item)
        self._means(WrittenTable(table.key, new))

    def update(self, table: WrittenTable) -> None:
        """Set a table's keys, and update clusterkit's comments in it whose figures have changed.

        A missing table is inserted.
        """
        if not _places(self._document, table.key):
            self.insert(table)
            return
        for header in (one for one in self._headers if one.key == table.key):
            header.above = "\n".join(_renewed(line, table.head) for line in header.above.split("\n"))
        for entry in table.entries:
            self._set(table.key, entry)
        self.add_missing(table)

    def insert(self, table: WrittenTable, *, first: bool = False) -> None:
        """Insert a new table last or first or, if its key has more than two parts, after its siblings."""
        text = "\n".join(table.lines()) + "\n"
        family = table.key[:2] if len(table.key) > 2 else None
        kin = [at for at, one in enumerate(self._headers, 1) if one.key[:2] == family]
        self._means(table)
        if first and self._headers:
            self._headers[0].new += f"{text}\n"
        elif kin and kin[-1] < len(self._headers):
            self._headers[kin[-1]].new += f"\n{text}"
        else:
            there = self._document.as_string() or self._tail
            gap = "\n" if there and not re.search(r"(?:^|\n)[ \t]*\n$", self._tail) else ""
            self._tail += gap + text

    def remove(self, key: Key) -> None:
        """Remove a key with the comment on its line, or a table with the comment right above its header."""
        node = self.value(key[:-1])
        if not isinstance(node, dict) or node.pop(key[-1], None) is None:
            return
        for place in _places(self._document, key[:-1], implied=True):
            if key[-1] in place:
                place.remove(key[-1])
        kept = ""
        for header in self._headers:
            if header.key[: len(key)] == key:
                kept += header.new + _parted(header.above, last=True)[0]
            else:
                header.above, kept = kept + header.above, ""
        self._tail = kept + self._tail
        self._headers = [one for one in self._headers if one.key[: len(key)] != key]

    def remark(self, table: Key, text: str, mark: str) -> bool:
        """Replace the comment in a table that starts with the mark; False without one."""
        for place in _places(self._document, table):
            for _, item in place.value.body:
                if isinstance(item, Comment) and item.trivia.comment.startswith(f"# {mark}"):
                    item.trivia.comment = f"# {text}"
                    return True
        return False

    def text(self) -> str:
        """The text with the changes.

        Raises:
            ConfigError: the file's form would give the change another meaning.
        """
        for at, header in enumerate(self._headers):
            before, own = _parted(header.above, last=at == 0)
            header.table.trivia.indent = before + header.new + own
        text = self._document.as_string() + self._tail
        try:
            right = tomllib.loads(text) == self._meaning
        except tomllib.TOMLDecodeError:
            right = False
        if not right:
            raise self._refusal
        return text.replace("\n", self._end)

    def _means(self, table: WrittenTable) -> None:
        """Record a value that the final text must have."""
        node = self._meaning
        for part in table.key:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise self._refusal
        node |= {entry.key: entry.value for entry in table.entries}

    def _set(self, table: Key, entry: Entry) -> None:
        """Change an existing key; the comment after its value stays."""
        for place in _places(self._document, table):
            for name, item in list(place.value.body):
                if name is None or name.key != entry.key:
                    continue
                if self.value((*table, entry.key)) != entry.value:
                    self._means(WrittenTable(table, (entry,)))
                    item = tomlkit.value(toml_value(entry.value))
                    place[entry.key] = item
                item.trivia.comment = _renewed(item.trivia.comment, (entry.why,))
                if entry.above and isinstance(place, HeaderTable):
                    indent = item.trivia.indent
                    item.trivia.indent = f"{indent}# {entry.above}\n{indent}"


def with_keys(text: str, table: Key, values: Mapping[str, str | int], comment: str, mark: str) -> str:
    """Sets keys of a table in a text.

    An existing key is changed on its line; new ones are added at the end of the table, which is created at
    the end of the text if missing. The comment is put above the first new key, or else above a changed one.

    Args:
        text: the file's, valid TOML.
        table: for example `("profiles", "mine")`.
        values: what to set.
        comment: one line, without its `# `.
        mark: start of clusterkit's comments; one in the table is replaced.

    Raises:
        ConfigError: the file's form cannot be changed; the hint has the lines to write.
    """
    entries = [Entry(name, value) for name, value in values.items()]
    lines = ", ".join(entry.code for entry in entries)
    editor = Editor(text, table, hint=f"write it there yourself: {lines}")
    if not editor.remark(table, mark + comment, mark):
        there = editor.value(table) or {}
        new = [name for name in values if name not in there]
        first = (new or [name for name in there if name in values])[0]
        entries = [replace(one, above=mark + comment if one.key == first else "") for one in entries]
    editor.update(WrittenTable(table, tuple(entries)))
    return editor.text()


def _headers(node: Container, key: Key, above: list[tuple[Container, int]]) -> Iterator[_Header]:
    """The headers below a table in text order; the lines above them are taken out of other tables."""
    for at, (name, item) in enumerate(node.body):
        tables = [item] if isinstance(item, HeaderTable) else item.body if isinstance(item, AoT) else []
        if isinstance(item, Whitespace | Comment):
            above.append((node, at))
        elif not tables and not isinstance(item, Null):
            above.clear()
        for table in tables:
            assert name is not None, "a table has a name"
            if not table.is_super_table():
                yield _Header((*key, name.key), table, _taken(above) + table.trivia.indent)
            yield from _headers(table.value, (*key, name.key), above)


def _taken(above: list[tuple[Container, int]]) -> str:
    """Removes comments and empty lines and returns their text."""
    text = ""
    for node, at in above:
        text += node.body[at][1].as_string()
        node.body[at] = (None, Null())
    above.clear()
    return text


def _places(node: Container, key: Key, *, implied: bool = False) -> list[AbstractTable]:
    """The places of a table: below its header, inline, or as the first part of dotted keys.

    With `implied`, also as part of other tables' headers.
    """
    found: list[AbstractTable] = []
    for name, item in node.body:
        if name is None or name.key != key[0] or not isinstance(item, AbstractTable):
            continue
        part = isinstance(item, HeaderTable) and item.is_super_table() and not name.is_dotted()
        if len(key) > 1:
            found += _places(item.value, key[1:], implied=implied)
        elif implied or not part:
            found.append(item)
    return found


def _parted(above: str, *, last: bool) -> tuple[str, str]:
    """Splits the lines above a header at the first or last empty line."""
    lines = re.split(r"(?<=\n)", above)
    empty = [at for at, line in enumerate(lines[:-1]) if not line.strip()]
    at = 0 if not empty else empty[-1] + 1 if last else empty[0]
    return "".join(lines[:at]), "".join(lines[at:])


def _renewed(comment: str, ours: Sequence[str]) -> str:
    """A comment, or clusterkit's own that differs only in its figures."""
    words = _FIGURE.sub("0", comment)
    return next((f"# {one}" for one in ours if _FIGURE.sub("0", f"# {one}") == words), comment)
