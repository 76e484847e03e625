"""Writing files so that a reader, or a crash at any moment, finds the old content or the whole new one."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self


def atomic_write_bytes(path: Path, data: bytes) -> None:
    """Replaces a file by rename after its content is on disk. The file is private to the user (mode 0600).

    Raises:
        OSError: no space, no directory, no permission; the old file is untouched then.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    sync_directory(path.parent)


def atomic_write_json(path: Path, value: Any) -> None:
    """Writes a value as JSON with `atomic_write_bytes`.

    Raises:
        ValueError: a number that JSON does not know (not finite).
        OSError: as `atomic_write_bytes`.
    """
    atomic_write_bytes(path, json.dumps(value, allow_nan=False, indent=2).encode() + b"\n")


def publish_directory(temporary: Path, final: Path) -> None:
    """Renames a finished directory into place once everything in it is on disk.

    Args:
        temporary: a directory on the same file system, written completely and no longer touched.
        final: where it appears; must not exist yet, or be an empty directory.

    Raises:
        OSError: `final` has content already, or the file system refuses.
    """
    for folder, _, files in os.walk(temporary):
        for name in files:
            _sync(Path(folder) / name)
        sync_directory(Path(folder))
    temporary.rename(final)
    sync_directory(final.parent)


def sync_directory(path: Path) -> None:
    """Brings the entries of a directory (names, renames) to disk."""
    _sync(path)


class JsonLines:
    """An append-only file of one JSON object a line.

    A line is one `write` of the operating system, so that no reader or crash sees two lines mixed; the torn
    last line of an attempt that died is closed before the first new one.

    Raises:
        OSError: the file cannot be opened or written.
    """

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if _torn(path):
            os.write(self._file, b"\n")

    def write(self, row: dict[str, Any]) -> None:
        """Appends one object. Numbers that are not finite become null, since JSON has none of them."""
        line = json.dumps(plain(row), allow_nan=False, separators=(",", ":")).encode() + b"\n"
        written = 0
        while written < len(line):
            written += os.write(self._file, line[written:])

    def close(self) -> None:
        """Brings the lines to disk and closes the file; a second call does nothing."""
        if self._file >= 0:
            os.fsync(self._file)
            os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def plain(value: Any) -> Any:
    """Returns the value as JSON can hold it, through dicts, lists and tuples.

    Scalars of NumPy and PyTorch become Python numbers, and numbers that are not finite become None.
    """
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _torn(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
