"""Finds the user's home folder, creates folders on this machine, and replaces files in them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from clusterkit.errors import ConfigError

PARTIAL_DIR = ".clusterkit-partial"
"""Folder beside an unfinished file that keeps what has arrived, so that a second try goes on from there."""
_WORK = "work"
_VARIABLE = re.compile(r"\$(\w+|\{[^}]*\})")


def home() -> Path | None:
    """The home folder, which need not exist; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def user_name() -> str:
    """The login name, or else the user's number."""
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # no variable says it, and no entry of the passwd database
        return str(os.getuid())


def home_or_root() -> Path:
    """The home folder, or / without one, as in sshd."""
    folder = home()
    return folder if folder and folder.is_dir() else Path("/")


def expanded(path: str) -> Path:
    """Expands `~` or `~user` in a path.

    Raises:
        ConfigError: the home folder is unknown.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{path!r} starts with a home folder that is not known", hint="write the full path"
        ) from None


def local_path(text: str, folder: str | Path) -> Path:
    """Returns a path on this machine, with `~`, `~user` and environment variables expanded.

    Args:
        text: as in a settings file.
        folder: where relative paths start.

    Raises:
        ValueError: a variable or the home folder is unknown, and a folder of that name would be made; or the
            path holds a NUL.
    """
    if "\0" in text:
        raise ValueError(f"{text!r} contains a NUL, which no path can")
    path = os.path.expandvars(text)
    if unknown := _VARIABLE.search(path):
        raise ValueError(f"{text!r} contains {unknown[0]}, which is not set here")
    try:
        return Path(folder) / Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{text!r} starts with a home folder that is not known") from None


def is_environment(folder: str | Path) -> bool:
    """Whether a folder, or what a link leads to, is a Python or conda environment."""
    return os.path.lexists(f"{folder}/pyvenv.cfg") or os.path.isdir(f"{folder}/conda-meta")  # noqa: PTH112 - fast


def make_ignored(folder: Path) -> None:
    """Create a folder of mode 0700 with a `.gitignore` that makes git ignore it.

    An existing folder stays unchanged: the user may keep it in git.

    Raises:
        OSError: it cannot be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    (folder / ".gitignore").write_text("*\n")


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, each with mode 0700 (not the umask's).

    Raises:
        OSError: one cannot be created.
    """
    for one in reversed([folder, *folder.parents]):
        if not one.exists():
            one.mkdir(mode=0o700, exist_ok=True)


def replace_file(file: Path, data: bytes, *, mode: int) -> None:
    """Create or replace a file atomically: temporary file, fsync, rename.

    Raises:
        OSError: it cannot be written; the old one, if any, is as it was.
    """
    import tempfile  # deferred, as shutil below: every command imports this module

    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:64]}.")
    try:
        with os.fdopen(handle, "wb") as part:
            part.write(data)
            part.flush()
            os.fchmod(part.fileno(), mode)
            os.fsync(part.fileno())
        Path(temporary).replace(file)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def work_folder(home: Path) -> Iterator[Path]:
    """A temporary private folder in `home`; `sweep` removes those of killed processes.

    Raises:
        OSError: it cannot be created.
    """
    import shutil
    import tempfile

    work = home / _WORK
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        with locked(work, wait=True):  # so that nobody sweeps it before it is held
            folder = Path(tempfile.mkdtemp(dir=work))
            held.enter_context(locked(folder, wait=True))
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        yield folder


def sweep(home: Path) -> None:
    """Remove the work folders in `home` that no process holds any more."""
    import shutil

    work = home / _WORK
    with contextlib.suppress(OSError), locked(work):
        for folder in work.iterdir():
            with contextlib.suppress(OSError), locked(folder):
                shutil.rmtree(folder, ignore_errors=True)


def is_held(home: Path, name: str) -> bool:
    """Whether a process holds the work folder of this name; False without file locks."""
    try:
        with locked(home / _WORK / name, fcntl.LOCK_SH):
            return False
    except OSError as error:
        return isinstance(error, BlockingIOError)


@contextmanager
def locked(folder: Path, kind: int = fcntl.LOCK_EX, *, wait: bool = False) -> Iterator[None]:
    """Hold a folder's lock, which the end of this process frees; with `wait` once it is free.

    With `wait`, nothing is locked where the file system has no locks.

    Raises:
        OSError: another process holds it, or the file system has no locks.
    """
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        with contextlib.suppress(*([OSError] if wait else [])):  # nothing is swept there
            fcntl.flock(opened, kind | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(opened)
