"""Translates file, disk and connection errors into clusterkit errors with one table."""

from __future__ import annotations

import errno
import os
import sys

from clusterkit.errors import ClusterkitError, TransportError

_DISK_FULL = "free some space there (`df -h` shows where), then repeat the command"
_OWNER = "check its owner and mode (`ls -ld` shows both), or use another folder"
_OTHER_FOLDER = "use a writable folder"
_FILES = {
    errno.EACCES: ("permission denied", _OWNER),
    errno.EPERM: ("not permitted", _OWNER),
    errno.ENOSPC: ("no space left on the disk", _DISK_FULL),
    errno.EDQUOT: ("your disk quota is used up", _DISK_FULL),
    errno.EFBIG: ("the file would exceed the size limit", "check `ulimit -f`, or use another disk"),
    errno.EROFS: ("the file system is read-only", _OTHER_FOLDER),
    errno.EISDIR: ("is a folder, not a file", "name a file"),
    errno.ENOTDIR: ("there is a file where a folder should be", "use a folder, or move the file away"),
    errno.EEXIST: ("already exists", "move it away, or use another"),
    errno.ENOTEMPTY: ("is a folder that is not empty", "move it away, or use another"),
    errno.ENOENT: ("no such file or folder", "check the path; it may have been moved in the meantime"),
    errno.ENAMETOOLONG: ("the name is too long", "use a shorter one"),
    errno.ELOOP: ("symbolic links form a loop", "correct the link"),
    errno.EMFILE: ("too many open files", "`ulimit -n 4096` allows more files in this shell"),
    errno.ENFILE: ("too many open files on this machine", "close other programs, then try again"),
    errno.EAGAIN: (
        "this machine cannot start more processes now",
        "close other programs, or check `ulimit -u`",
    ),
    errno.ENOMEM: ("out of memory", "close other programs, then try again"),
    errno.EBUSY: ("is in use", "stop the program that uses it, then try again"),
    errno.ETXTBSY: ("is running, and cannot be changed", "end it, then try again"),
    errno.EIO: ("cannot be read or written: input/output error", "the disk or its file server may be faulty"),
    errno.ESTALE: ("no longer exists on its file server", "leave the folder and enter it again"),
    errno.ENOEXEC: ("is not a program for this machine", "install the version built for this machine"),
}
"""Error number -> the message and the hint."""


def fault_of(error: BaseException) -> ClusterkitError | None:
    """Translates a standard library exception; returns None if it can only be a bug in clusterkit."""
    if isinstance(error, ClusterkitError):
        return error
    if isinstance(error, OSError):
        return _of_system(error)
    if isinstance(error, MemoryError):
        return ClusterkitError("this machine has no memory left", hint="close other programs, then try again")
    if "sqlite3" in sys.modules:  # otherwise it cannot be an sqlite3 error
        import sqlite3

        from clusterkit.runs.ledger_faults import ledger_fault

        if isinstance(error, sqlite3.DatabaseError):
            return ledger_fault(error)
    if "optuna" in sys.modules:
        from clusterkit.search.study import storage_fault

        return storage_fault(error)
    return None


def _of_system(error: OSError) -> ClusterkitError | None:
    if error.errno is None and not isinstance(error, TimeoutError):
        return None
    where = _where(error)
    if not where and error.errno == errno.ENOENT and not _has_folder():
        return ClusterkitError("the current folder is gone", hint="`cd` into one that exists")
    where = where or "a file"
    if error.errno in _FILES:
        what, hint = _FILES[error.errno]
        return ClusterkitError(f"{where}: {what}", hint=hint)
    what = error.strerror or str(error) or type(error).__name__
    if isinstance(error, ConnectionError | TimeoutError) or type(error).__module__ == "socket":
        return TransportError(f"a connection was lost: {what}", hint="check the network, then try again")
    return ClusterkitError(f"{where}: {what}", hint="correct this, then repeat the command")


def _where(error: OSError) -> str:
    names = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    return " -> ".join(names)


def _has_folder() -> bool:
    try:
        os.getcwd()  # noqa: PTH109 - queries the system, not a path
    except OSError:
        return False
    return True
