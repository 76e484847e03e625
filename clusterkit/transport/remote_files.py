"""Single files of a machine that is reached by commands alone: read, written, asked after.

`run` stands for what carries out a command and returns its end, whatever its exit status. All of these may be
run twice.
"""

from __future__ import annotations

import os
import posixpath
from typing import Protocol

from clusterkit.transport import faults
from clusterkit.transport.base import Completed, MissingFileError

_SECONDS = 300.0
_NOT_A_FOLDER, _ABSENT = 10, 11

_WRITE = """
set -u
umask 077
mkdir -p -- "$2" || exit 1
if [ -d "$1" ]; then echo "Is a directory" >&2; exit 1; fi
cat > "$3" && [ "$(($(wc -c < "$3")))" -eq "$4" ] &&
    { sync "$3" 2>/dev/null || sync; } && mv -f -- "$3" "$1" && exit 0
rm -f -- "$3"
exit 1
"""
"""Arguments: path, folder, temporary path, size; a cut connection ends `cat` early, hence the size."""

_KIND = f'[ -d "$1" ] && exit 0; [ -e "$1" ] && exit {_NOT_A_FOLDER}; exit {_ABSENT}'


class RunRemotely(Protocol):
    """Carries out a command."""

    def __call__(self, argv: list[str], *, stdin: bytes = b"", timeout: float | None = 60.0) -> Completed:
        """Returns the command's end."""


def read(run: RunRemotely, path: str, *, where: str) -> bytes:
    """Returns the bytes of a file.

    Raises:
        MissingFileError: it does not exist.
        TransportError: it cannot be read.
    """
    answer = run(["env", "LC_ALL=C", "cat", "--", path], timeout=_SECONDS)
    if answer.returncode != 0:
        raise faults.unreadable(path, answer.error_text, where=where)
    return answer.stdout


def write(run: RunRemotely, path: str, data: bytes, *, where: str) -> None:
    """Writes a private file as a whole, or leaves the old one; its folders are made.

    Raises:
        TransportError: it cannot be written.
    """
    folder, name = posixpath.split(path)
    temporary = posixpath.join(folder, f".{name[:64]}.{os.urandom(8).hex()}")
    script = ["env", "LC_ALL=C", "sh", "-c", _WRITE, "sh"]
    arguments = [path, folder or "/", temporary, str(len(data))]
    answer = run(script + arguments, stdin=data, timeout=_SECONDS)
    if answer.returncode != 0:
        raise faults.unwritable(path, answer.error_text, where=where)


def is_folder(run: RunRemotely, path: str, *, where: str) -> bool:
    """Returns whether a path is a folder.

    Raises:
        MissingFileError: there is nothing.
    """
    kind = run(["sh", "-c", _KIND, "sh", path])
    if kind.returncode == _ABSENT:
        raise MissingFileError(f"{path} does not exist on {where}")
    return kind.returncode == 0
