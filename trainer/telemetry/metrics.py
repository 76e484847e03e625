"""Writes `metrics.jsonl`: every logged metric, one JSON object a line, as in docs/run-directory.md."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.files import JsonLines

KINDS = ("run", "train", "eval", "checkpoint", "event")


class Metrics:
    """The append-only metrics file of a run, shared by its attempts.

    Args:
        path: the file; made if missing.
        attempt: the number of this start of the run; each line carries it.
    """

    def __init__(self, path: Path, attempt: int) -> None:
        self._lines = JsonLines(path)
        self._attempt = attempt

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
        line = {"kind": kind, "step": int(step), "time": time.time(), "attempt": self._attempt}
        hidden = line.keys() & fields.keys()
        if kind not in KINDS or hidden:
            raise ValueError(
                f"not a line of metrics: kind {kind!r}, fields {sorted(hidden)} are the line's own"
            )
        self._lines.write({**line, **fields})

    def close(self) -> None:
        """Brings everything to disk; a second call does nothing."""
        self._lines.close()
