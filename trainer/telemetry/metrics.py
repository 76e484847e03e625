"""Writes `metrics.jsonl`: every logged metric, one JSON object a line, as in docs/run-directory.md."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.files import plain

KINDS = ("run", "train", "eval", "checkpoint", "event")


class Metrics:
    """The append-only metrics file of a run, shared by its attempts.

    A line is one `write` of the operating system, so that no reader or crash sees two lines mixed; the torn
    last line of an attempt that died is closed before the first new one.

    Args:
        path: the file; made if missing.
        attempt: the number of this start of the run; each line carries it.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        self._attempt = attempt
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if _torn(path):
            os.write(self._file, b"\n")

    def write(self, kind: str, step: int, fields: Mapping[str, Any]) -> None:
        """Appends a line.

        Args:
            kind: one of `KINDS`.
            step: environment steps so far.
            fields: anything JSON can hold; NumPy and PyTorch scalars too. Numbers that are not finite
                become null.

        Raises:
            ValueError: an unknown kind, or a field that would hide one of the line's own keys.
            OSError: the line cannot be written, for example for lack of space.
        """
        own = {"kind": kind, "step": int(step), "time": time.time(), "attempt": self._attempt}
        hidden = own.keys() & fields.keys()
        if kind not in KINDS or hidden:
            raise ValueError(
                f"not a line of metrics: kind {kind!r}, fields {sorted(hidden)} are the line's own"
            )
        line = _encoded({**own, **fields})
        written = 0
        while written < len(line):
            written += os.write(self._file, line[written:])

    def close(self) -> None:
        """Brings everything to disk and closes the file; a second call does nothing."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1


def _encoded(row: dict[str, Any]) -> bytes:
    """Returns a row as a line of JSON."""
    encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
    try:
        text = encode(row)  # nearly all rows are plain as they come
    except (TypeError, ValueError):
        text = encode(plain(row))
    return text.encode() + b"\n"


def _torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
