"""Writing files so that a reader, or a crash at any moment, finds the old content or the whole new one."""

from __future__ import annotations

import contextlib
import hashlib
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


class HashedFile:
    """A new file, private to the user, that is hashed while it is written. Use as a context manager.

    Leaving the context brings the file to disk. `torch.save` takes it for a file; it may hide the reason of
    a write that failed behind an error of its own, so the reason stays in `fault`.

    Args:
        path: must not exist yet.

    Attributes:
        nbytes: bytes written so far.
        fault: the first error of a write.

    Raises:
        OSError: no space, no directory, no permission, or a file of this name.
    """

    _PIECE = 1 << 22

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._hash = hashlib.sha256()
        self.nbytes = 0
        self.fault: OSError | None = None

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of what was written so far."""
        return self._hash.hexdigest()

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Appends all of the data; returns its bytes."""
        view = memoryview(data).cast("B")
        for begin in range(0, len(view), self._PIECE):
            piece = view[begin : begin + self._PIECE]
            self._hash.update(piece)
            try:
                while piece:
                    piece = piece[os.write(self._file, piece) :]
            except OSError as fault:
                self.fault = self.fault or fault
                raise
        self.nbytes += len(view)
        return len(view)

    def flush(self) -> None:
        """Does nothing: no write waits in this process."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                os.fsync(self._file)
        finally:
            os.close(self._file)


def plain(value: Any) -> Any:
    """Returns the value as JSON can hold it, through dicts, lists and tuples.

    Scalars of NumPy and PyTorch become Python numbers, and numbers that are not finite become None.
    """
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
