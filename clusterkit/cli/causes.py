"""Translates any exception into a clusterkit error: file, disk and connection errors with one table.

The traceback of a bug goes to a private file for a report, not to the screen.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from clusterkit import __version__, folders
from clusterkit.errors import ClusterkitError, TransportError

UNEXPECTED = 70
"""Exit code for a bug in clusterkit itself: EX_SOFTWARE in sysexits.h."""
_HIDDEN = "***"
_WORDS = r"(?:key|token|secret|passw|passphrase|auth|credential)"
_SECRET = re.compile(_WORDS, re.IGNORECASE)
_GIVEN = re.compile(rf".*?{_WORDS}[^=]*=", re.IGNORECASE | re.DOTALL)
_NAMED = re.compile(
    rf"""((?:[\w.-]*{_WORDS}[\w.-]*(?:['"]?\s*[=:]\s*|['"],\s+(?=['"]))|--[\w-]*{_WORDS}[\w-]*\s+)"""
    r"""(?:bearer\s+|basic\s+)?)(?:"[^"]*"?|'[^']*'?|\S+)""",
    re.IGNORECASE,
)
_SEEMS_SECRET = re.compile(
    r"[0-9a-f]{32,}"  # a W&B key
    r"|(?=\w*\d)(?=\w*[A-Za-z])\w{36,}"  # a token of GitHub, Hugging Face and others
    r"|(?<=://)[^/@\s]+(?=@)",  # credentials in a URL
    re.IGNORECASE,
)


class UnexpectedError(ClusterkitError):
    """An exception that clusterkit does not anticipate: a bug in clusterkit."""

    exit_code = UNEXPECTED


def unexpected(error: BaseException, words: Sequence[str]) -> UnexpectedError:
    """Writes an exception's traceback to a file and returns the error to show.

    Args:
        error: the exception.
        words: the command-line arguments, without the program's name.
    """
    last = masked_text("".join(traceback.format_exception_only(error)).strip().splitlines()[-1])
    text = _report(error, words)
    kept = next((file for folder in _folders() if (file := _written(folder, text))), None)
    if kept is None:
        hint = "please report this line; the details could not be written anywhere"
    else:
        hint = f"please report it; the details are in {kept}, without the values of variables"
    return UnexpectedError(f"a bug in clusterkit itself: {last}", hint=hint)


def masked(words: Iterable[str]) -> list[str]:
    """Masks arguments that may be secret, judging by name or form, and all arguments after `--`.

    >>> masked(["submit", "--sbatch", "export=API_KEY=abc", "--", "--password", "x"])
    ['submit', '--sbatch', 'export=API_KEY=***', '--', '***', '***']
    """
    told: list[str] = []
    hide, foreign = False, False
    for word in words:
        if foreign or hide:
            told.append(_HIDDEN)
            hide = False
            continue
        foreign = word == "--"
        if given := _GIVEN.match(word):
            told.append(f"{given[0]}{_HIDDEN}")
        else:
            hide = word.startswith("--") and "=" not in word and bool(_SECRET.search(word))
            told.append(_SEEMS_SECRET.sub(_HIDDEN, word))
    return told


def masked_text(text: str) -> str:
    """Masks values in a message that are named like a secret or look like one."""
    return _SEEMS_SECRET.sub(_HIDDEN, _NAMED.sub(rf"\1{_HIDDEN}", text))


def _report(error: BaseException, words: Sequence[str]) -> str:
    """Formats the traceback without local variables, and masks possible secrets in messages."""
    seen = traceback.TracebackException.from_exception(error, capture_locals=False)
    lines = [
        f"clusterkit {__version__}, Python {platform.python_version()}, {platform.platform()}\n",
        f"clusterkit {' '.join(masked(words))}\n\n",
        *(line if line.startswith("  ") else masked_text(line) for line in seen.format()),
    ]
    return "".join(lines)


def _folders() -> Iterator[Path]:
    """Yields candidate folders, best first: the project's, the user's state folder, the temporary folder."""
    with suppress(OSError):  # the current folder is gone
        here = Path.cwd()
        yield from (folder / ".clusterkit" for folder in (here, *here.parents))
    base, home = os.environ.get("XDG_STATE_HOME", ""), folders.home()
    states = Path(base) if base.startswith("/") else home and home / ".local" / "state"
    if states and (base or (home and home.is_dir())):
        folder = states / "clusterkit"
        with suppress(OSError):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield folder
    with suppress(OSError):  # no temporary folder can be written
        yield Path(tempfile.gettempdir())


def _written(folder: Path, text: str) -> Path | None:
    """Writes a new file that only the user can read; returns None if that fails."""
    begin = time.strftime("crash-%Y%m%d-%H%M%S-")
    try:
        number, name = tempfile.mkstemp(".txt", begin, folder)
    except OSError:
        return None
    try:
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:  # a full disk
        Path(name).unlink(missing_ok=True)
        return None
    return Path(name)


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
