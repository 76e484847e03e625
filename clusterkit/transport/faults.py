"""The errors both transports raise for the same fault, whichever road was taken. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from clusterkit.errors import TransportError
from clusterkit.transport.base import Completed, MissingFileError


class UnreachableError(TransportError):
    """Nothing answers as an SSH server there, now; a minute later it may."""


class LostError(TransportError):
    """The connection died on the way; what was running may or may not have ended."""


class NotStartedError(LostError):
    """The connection was dead before the command could be sent; nothing ran."""


_DISK = re.compile(r"no space left|quota exceeded", re.IGNORECASE)
NOT_FOUND = 127
"""Exit status of a shell that does not find the program (POSIX.1-2017, 2.8.2)."""


def command_failed(completed: Completed, *, where: str) -> TransportError:
    """The error for a command that ended with another status than 0; it ends with its last words."""
    program = completed.argv[0]
    if completed.returncode == NOT_FOUND:
        return TransportError(
            f"{program}: command not found on {where}",
            hint="check the PATH of non-interactive shells there; login_shell = true asks a login shell",
        )
    lines = [line.strip() for line in completed.error_text.splitlines() if line.strip()]
    ending = (
        f"was ended by signal {-completed.returncode}"
        if completed.returncode < 0
        else f"failed with status {completed.returncode}"
    )
    words = f": {lines[-1]}" if lines else ""
    return TransportError(
        f"{program} {ending} on {where}{words}", hint=f"the command was: {brief(completed.argv)}"
    )


def timed_out(argv: Sequence[str], seconds: float, *, where: str) -> TransportError:
    """The error for a command that was ended because its time was up."""
    return TransportError(
        f"{argv[0]} did not finish within {seconds:g} s on {where} and was ended",
        hint=f"the machine may be overloaded: try again; the command was: {brief(argv)}",
    )


def unreadable(path: str, reason: str, *, where: str) -> TransportError:
    """The error for a file that cannot be read; `reason` is the system's own (English) text."""
    if "No such file" in reason or "Not a directory" in reason:
        return MissingFileError(f"{path} does not exist on {where}")
    return TransportError(f"cannot read {path} on {where}: {_last_words(reason)}")


def telling(words: str) -> str | None:
    """The line of a tool's errors that says most: one about a disk, else the last; None without any."""
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    return next((line for line in lines if _DISK.search(line)), lines[-1] if lines else None)


def room_hint(words: str) -> str | None:
    """The next step where a tool says that a disk is full; None where it says something else."""
    if not _DISK.search(words):
        return None
    return "free space there: `clusterkit clean` and `clusterkit gc` remove what is not needed any more"


def unwritable(path: str, reason: str, *, where: str) -> TransportError:
    """The error for a file that cannot be written; `reason` is the system's own (English) text."""
    if "No space left" in reason or "quota exceeded" in reason:
        problem = "no space left on device" if "No space left" in reason else "disk quota exceeded"
        return TransportError(f"{problem} on {where}: cannot write {path}", hint=f"free space on {where}")
    return TransportError(f"cannot write {path} on {where}: {_last_words(reason)}")


def brief(argv: Sequence[str], limit: int = 200) -> str:
    """A command on one line for a message."""
    text = shlex.join(argv).replace("\n", "\\n")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _last_words(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rpartition(": ")[2] if lines else "no reason given"
