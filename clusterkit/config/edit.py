"""Changes keys of one table in a settings file, and leaves all else as the person wrote it. Pure.

TOML can say the same thing in many ways. The edit is therefore made on lines, where the file is plain enough
for that, and then checked by what the two texts mean: anything but the wished change is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any

from clusterkit.config.lines import (
    Key,
    join_key,
    key_lines,
    last_line_of_value,
    lines_of,
    quoted,
    table_lines,
)
from clusterkit.errors import ConfigError

_COMMENT = re.compile(r"\s*(?:#.*)?$")


def literal(value: str | int) -> str:
    """A value as TOML."""
    return quoted(value) if isinstance(value, str) else str(value)


def with_keys(text: str, table: Key, values: Mapping[str, str | int], comment: str, mark: str) -> str:
    """The text with some keys of a table set.

    A key that is there is changed on its line; the others come at the end of the table, which is made at the
    end of the text if it is not there. The comment stands above the first new key, or else a changed one.

    Args:
        text: of the file, valid TOML.
        table: for example `("profiles", "mine")`.
        values: what to set.
        comment: one line, without its `# `.
        mark: how comments of ours begin; one that is in the table is replaced.

    Raises:
        ConfigError: the file says it in a way that cannot be changed line by line; the hint has the lines.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    lines = lines_of(text)
    plain = text in ("", whole := end.join(lines) + end, whole.removesuffix(end))  # no ends of another kind
    region = _region(text, table)
    added: list[str] = []
    places: list[int] = []
    for name, value in values.items():
        number = key_lines("\n".join(lines)).get((*table, name))
        if region and number and region[0] < number <= region[1]:
            gone = _replace(lines, number - 1, value)
            region = region[0], region[1] - gone
            places.append(number - 1)
        else:
            added.append(f"{name} = {literal(value)}")
    remark = f"# {mark}{comment}"
    if region is None:
        gap = [""] if lines and lines[-1].strip() else []
        lines += [*gap, f"[{join_key(table)}]", remark, *added]
    else:
        at = _end_of_keys(lines, *region)
        before = [number for number in range(region[0], at) if lines[number].lstrip().startswith(f"# {mark}")]
        lines[at:at] = added
        if before:
            lines[before[0]] = remark
        else:
            lines.insert(at if added else min(places), remark)
    changed = end.join(lines) + end
    if not (plain and _means(text, changed, table, values)):
        keys = ", ".join(f"{name} = {literal(value)}" for name, value in values.items())
        raise ConfigError(
            f"[{join_key(table)}] is written in a way that is not changed automatically; nothing was written",
            hint=f"write it there yourself: {keys}",
        )
    return changed


def _replace(lines: list[str], begin: int, value: str | int) -> int:
    """Writes another value where a key's value begins; returns how many lines are gone."""
    stop = last_line_of_value(lines, begin)
    key, _, old = lines[begin].partition("=")
    space = old[: len(old) - len(old.lstrip())]
    lines[begin : stop + 1] = [f"{key}={space}{literal(value)}{_tail(old) if stop == begin else ''}"]
    return stop - begin


def _region(text: str, table: Key) -> tuple[int, int] | None:
    """Indices of the line after a table's header and of that after its last line; None without a header."""
    headers = table_lines(text)
    for place, (number, key) in enumerate(headers):
        if key == table:
            return number, headers[place + 1][0] - 1 if place + 1 < len(headers) else len(lines_of(text))
    return None


def _end_of_keys(lines: list[str], first: int, last: int) -> int:
    """Where a new key of the table goes: behind its last key, before what follows it."""
    at = last
    while at > first and _COMMENT.match(lines[at - 1]):
        at -= 1
    return at


def _tail(old: str) -> str:
    """The comment behind a value on one line, with the space before it."""
    for position, char in enumerate(old):
        if char == "#":
            try:
                tomllib.loads(f"x = {old[:position]}")
            except tomllib.TOMLDecodeError:
                continue
            return old[len(old[:position].rstrip()) :]
    return ""


def _means(before: str, after: str, table: Key, values: Mapping[str, str | int]) -> bool:
    """Whether the second text says what the first does, but for the values."""
    wanted = tomllib.loads(before)
    node: Any = wanted
    try:
        for part in table:
            node = node.setdefault(part, {})
        node.update(values)
        return tomllib.loads(after) == wanted
    except (tomllib.TOMLDecodeError, AttributeError):
        return False
