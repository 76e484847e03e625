"""Reads a run's files, which may be damaged or hostile: regular files, JSON, its values, numbers in names.

A program may write anything into its run directory; no unexpected value raises here.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, BinaryIO

RECORD_BYTES = 256 << 10
"""Size limit of a run's small files: heartbeat, attempt records, requests and answers of submissions."""
DOCUMENT_BYTES = 8 << 20
"""Size limit of run.json, which holds the working tree's diff, and of file lists."""

_DEEPEST = 64
_LONGEST_WHOLE = 20
"""Digits of the largest whole number of 64 bits."""
_LARGEST = 1e18
"""No step, time or size of a run is larger; sums and differences of smaller ones stay finite."""
_LONGEST_LINE = 1000
_NUMBER = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[-+]?(?=\.?[0-9])[0-9]{0,300}(?:\.[0-9]{0,300})?(?:[eE][-+]?[0-9]{1,3})?")
_TOOLS = re.compile(r"(\.?git|\.?hg|\.?jj|\.?svn|\.?direnv?)(?:~[0-9]+)?")
_UNSEEN = re.compile("[\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
"""Code points that HFS+ ignores in names."""
_HALVES = re.compile(r"[\ud800-\udfff]")
_HALVES_BUT_BYTES = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")


def can_be_shown(name: str) -> bool:
    """Whether a name looks like what it is: without control, text-direction and invisible characters.

    The one rule for names that are made here and for those that are read.
    """
    return name.isprintable()


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting on a named pipe.

    Raises:
        OSError: it cannot be opened, or it is a folder, a named pipe, a socket or a device.
    """
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def read_limited(path: Path, limit: int) -> bytes | None:
    """Reads a regular file.

    Args:
        path: the file.
        limit: most bytes to read.

    Returns:
        None where it is missing, no regular file, or larger than the limit.
    """
    try:
        with open_regular(path) as file:
            data = file.read(limit + 1)
    except OSError:
        return None
    return data if len(data) <= limit else None


def parse_json(data: str | bytes) -> Any:
    """Parses JSON; infinities and NaN become None, and half of a surrogate pair U+FFFD.

    Bytes that are not UTF-8 and were decoded by `surrogateescape` stay unchanged.

    Raises:
        ValueError: it is not JSON, not UTF-8, or nested too deeply.
    """
    said = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        value = _DECODER.decode(said)
    except RecursionError:
        raise ValueError("nested too deep") from None
    if said.count("[") + said.count("{") > _DEEPEST and _depth(value) > _DEEPEST:
        raise ValueError("nested too deep")
    if "\\ud" in said or "\\uD" in said:
        value = whole_text(value, _HALVES_BUT_BYTES if _HALVES.search(said) else _HALVES)
    return value


def parse_object(data: str | bytes) -> dict[str, Any] | None:
    """Parses a JSON object; None for anything else."""
    try:
        value = parse_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def read_object(path: Path) -> dict[str, Any] | None:
    """Reads the JSON object in a small file; None if missing, too large or malformed."""
    data = read_limited(path, DOCUMENT_BYTES)
    return None if data is None else parse_object(data)


def number(value: object) -> float | None:
    """A finite number of plausible size; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -_LARGEST <= value <= _LARGEST:
        return None
    return float(value)


def whole(value: object) -> int | None:
    """A whole number of plausible size; None for anything else."""
    found = number(value)
    if found is None or found != math.floor(found):
        return None
    return value if isinstance(value, int) else int(found)


def flag(value: object) -> bool | None:
    """A truth value; None for anything else."""
    return value if isinstance(value, bool) else None


def text(value: object) -> str | None:
    """A text; None for anything else."""
    return value if isinstance(value, str) else None


def texts(value: object) -> list[str] | None:
    """A list of texts; None for anything else."""
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else None


def table(value: object) -> dict[str, Any] | None:
    """An object; None for anything else."""
    return value if isinstance(value, dict) else None


def table_of_texts(value: object) -> dict[str, Any] | None:
    """An object whose values are texts; None for anything else."""
    return value if isinstance(value, dict) and texts(list(value.values())) is not None else None


def of_tools(path: str) -> bool:
    r"""Whether a path leads into `.git`, `.hg`, `.jj`, `.svn` or `.direnv`, from where tools run programs.

    Also under the other names by which macOS and Windows file systems know these folders.

    >>> [of_tools(path) for path in ("a/.git/x", "A/.GIT. /x", "git~1", "a\\.hg\\x", "git", ".github")]
    [True, True, True, True, False, False]
    """
    plain = _UNSEEN.sub("", path).casefold() if not path.isascii() else path.lower()
    if not ("git" in plain or "hg" in plain or "jj" in plain or "svn" in plain or "diren" in plain):
        return False
    names = (name.partition(":")[0].rstrip(". ") for name in plain.replace("\\", "/").split("/"))
    return any(_TOOLS.fullmatch(name) and (name[0] == "." or "~" in name) for name in names)


def one_line(value: object) -> str:
    """A value as one line of text, shortened if long."""
    line = " ".join(str(value)[: 4 * _LONGEST_LINE].split())
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}..."


def whole_text(value: Any, halves: re.Pattern[str] = _HALVES) -> Any:
    """A value whose texts can be encoded: U+FFFD replaces each half of a surrogate pair."""
    if isinstance(value, str):
        return halves.sub("�", value)
    if isinstance(value, list):
        return [whole_text(each, halves) for each in value]
    if isinstance(value, dict):
        return {halves.sub("�", key): whole_text(each, halves) for key, each in value.items()}
    return value


Shape = Mapping[str, Callable[[object], object]]
"""The required type of each value, as one of the functions above."""


_KINDS: Shape = {
    "str": text,
    "int": whole,
    "float": number,
    "bool": flag,
    "tuple[str, ...]": texts,
    "Mapping[str, str]": table_of_texts,
    "Mapping[str, Any]": table,
}


def shape_of(record: type) -> Shape:
    """Returns the shape of the JSON object that a dataclass describes, by the types of its fields."""
    return {each.name: _KINDS[str(each.type).removesuffix(" | None")] for each in fields(record)}


def values_of(document: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Returns the values of a shape that have the right type and are not null, with tuples for lists."""
    values = {name: kind(document.get(name)) for name, kind in shape.items()}
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in values.items()
        if value is not None
    }


def shaped(document: Mapping[str, Any], shape: Shape) -> tuple[dict[str, Any], list[str]]:
    """An object without its wrongly typed values, and the names of those.

    Null values and names unknown to the shape stay.
    """
    given = {name: kind for name, kind in shape.items() if document.get(name) is not None}
    wrong = [name for name, kind in given.items() if kind(document[name]) is None]
    return {name: value for name, value in document.items() if name not in wrong}, wrong


def ordinal(name: str) -> int | None:
    """The number in a folder's name or a line, in ASCII digits: "²" is not one."""
    return int(name) if _NUMBER.fullmatch(name) else None


def decimal(said: str) -> float | None:
    """The number in a text, in ASCII digits and of plausible size; neither `nan` nor "1_000" is one."""
    return number(float(said)) if _DECIMAL.fullmatch(said) else None


def _finite(digits: str) -> float | None:
    value = float(digits)
    return value if math.isfinite(value) else None


def _integer(digits: str) -> float | None:
    return int(digits) if len(digits) <= _LONGEST_WHOLE else _finite(digits)


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_finite, parse_constant=lambda _: None)


def _depth(value: Any) -> int:
    """The nesting depth of lists and objects, counted level by level: recursion would overflow."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, dict | list)]:
        depth += 1
        if depth > _DEEPEST:
            break
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth
