"""Reads and writes `manifest.json`, a checkpoint's description. The file is not trusted."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

SCHEMA = 3
_SEAL = b', "sha256": "%s"}\n'
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DIGEST = re.compile(r"[0-9a-f]{64}")


class ForeignFormatError(ValueError):
    """The manifest is complete, but this trainer does not read its format."""


@dataclass(frozen=True)
class File:
    """A file of the checkpoint's folder: its size and its content."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Segment:
    """A file of replay rows, which never changes.

    Attributes:
        file: its name in the folder of segments.
        bytes: its size.
        sha256: its content.
        begin: of each lane of the replay, the first row in it.
        end: of each lane, the row after the last one in it.
    """

    file: str
    bytes: int
    sha256: str
    begin: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True)
class StoredReplay:
    """Where the rows of a replay are.

    Attributes:
        mark: the replay's `position()` at the save: the next segment begins there.
        segments: all that hold rows the replay still needs, oldest first.
    """

    mark: tuple[int, ...]
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Manifest:
    """A checkpoint's description.

    Attributes:
        step: environment steps.
        serial: counts the folder's checkpoints in the order they were saved. A run that resumes from an
            older checkpoint may save lower steps than existing ones.
        time: Unix seconds.
        run_id: the run that saved it.
        recipe: its recipe's name.
        files: name to size and digest.
        replay: None if it holds no replay of its own.
    """

    step: int
    serial: int
    time: float
    run_id: str
    recipe: str
    files: Mapping[str, File]
    replay: StoredReplay | None

    def to_bytes(self) -> bytes:
        """Returns the content of `manifest.json`; its last entry is the sha256 of all before it."""
        return sealed(json.dumps({"schema": SCHEMA, **asdict(self)}, allow_nan=False).encode())

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Reads and checks the content of `manifest.json`.

        Raises:
            ForeignFormatError: another format.
            ValueError: no manifest, a damaged one, or one with a name that leaves its folder.
        """
        try:
            held = json.loads(data)
            if held["schema"] != SCHEMA:
                raise ForeignFormatError(_foreign(held["schema"]))
            _check_seal(data)
            return cls(
                _count(held["step"]),
                _count(held["serial"]),
                float(held["time"]),
                str(held["run_id"]),
                str(held["recipe"]),
                {_name(name): _file(entry) for name, entry in held["files"].items()},
                None if held["replay"] is None else _replay(held["replay"]),
            )
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError("it lacks required entries") from error


def sealed(content: bytes) -> bytes:
    """Returns a JSON object with the sha256 of its text as one more entry at its end."""
    return content[:-1] + _SEAL % hashlib.sha256(content).hexdigest().encode()


def _check_seal(data: bytes) -> None:
    begin = len(data) - len(_SEAL % (b"0" * 64))
    if data != sealed(data[:begin] + b"}"):
        raise ValueError("it is damaged (its own sha256 differs)")


def _foreign(schema: Any) -> str:
    made = "by an older trainer " if type(schema) is int and schema < SCHEMA else ""
    return f"was written {made}in format {schema!r}; this trainer reads format {SCHEMA}"


def _file(entry: Mapping[str, Any]) -> File:
    return File(_count(entry["bytes"]), _digest(entry["sha256"]))


def _replay(held: Mapping[str, Any]) -> StoredReplay:
    mark = _counts(held["mark"])
    segments = tuple(_segment(entry) for entry in held["segments"])
    for segment in segments:
        if not len(segment.begin) == len(segment.end) == len(mark):
            raise ValueError(f"segment {segment.file} is of a replay with other lanes")
        if any(begin > end for begin, end in zip(segment.begin, segment.end, strict=True)):
            raise ValueError(f"segment {segment.file} ends before it begins")
    # a lane's last row may have been begun only: the next segment has it again, and the mark is at it
    for before, after in pairwise(segments):
        if any(begin < end - 1 for begin, end in zip(after.begin, before.end, strict=True)):
            raise ValueError(f"segment {after.file} begins within the one before it")
    if segments and any(not end - 1 <= row <= end for row, end in zip(mark, segments[-1].end, strict=True)):
        raise ValueError("its mark is not where its last segment ends")
    return StoredReplay(mark, segments)


def _segment(entry: Mapping[str, Any]) -> Segment:
    begin, end = _counts(entry["begin"]), _counts(entry["end"])
    return Segment(_name(entry["file"]), _count(entry["bytes"]), _digest(entry["sha256"]), begin, end)


def _name(value: Any) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is no name of a file in its folder")


def _digest(value: Any) -> str:
    if isinstance(value, str) and _DIGEST.fullmatch(value):
        return value
    raise ValueError(f"{value!r} is no sha256")


def _count(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    raise ValueError(f"{value!r} is no count")


def _counts(values: Any) -> tuple[int, ...]:
    return tuple(_count(value) for value in values)
