"""Handles unexpected exceptions: the traceback goes to a private file for a bug report, not to the screen."""

from __future__ import annotations

import os
import platform
import re
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from clusterkit import __version__, folders
from clusterkit.errors import ClusterkitError

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
