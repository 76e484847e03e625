"""Reads files of a pulled run safely: only regular ones, and only up to a limit."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


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
