"""The errors that all transports raise for the same fault, those of rsync among them. Pure."""

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


class NoRsyncError(TransportError):
    """One of the machines has no rsync; files can travel without it."""

    def __init__(self, cause: str, *, where: str, hint: str) -> None:
        super().__init__(cause, hint=hint)
        self.where = where


_FULL_DISK = re.compile(r"no space left on device|(quota exceeded)", re.IGNORECASE)
_NO_RSYNC = re.compile(r"rsync: (?:command )?not found|rsync: No such file|exec: rsync")
_MISSING = re.compile(r'(?:link_stat|change_dir) "(.+?)/?" failed: No such file or directory')
_NOISY_SHELL = "is your shell clean"
_OLD_RSYNC = re.compile(r"unknown option|unrecognized option|invalid option")
_FAR_RSYNC = "on remote machine"
NOT_FOUND = 127
"""Exit status of a shell that does not find the program (POSIX.1-2017, 2.8.2)."""


def command_failed(completed: Completed, *, where: str) -> TransportError:
    """Returns the error for a command that ended with another status than 0; it ends with its last words."""
    program = completed.argv[0]
    if completed.returncode == NOT_FOUND:
        return TransportError(
            f"{program}: command not found on {where}",
            hint="check the PATH of non-interactive shells there; login_shell = true uses a login shell",
        )
    lines = _lines(completed.error_text)
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
    """Returns the error for a command that was ended because its time was up."""
    return TransportError(
        f"{argv[0]} did not finish within {seconds:g} s on {where} and was stopped",
        hint=f"the machine may be overloaded: try again; the command was: {brief(argv)}",
    )


def unreadable(path: str, reason: str, *, where: str) -> TransportError:
    """Returns the error for a file that cannot be read; `reason` is the system's own (English) text."""
    if "No such file" in reason or "Not a directory" in reason:
        return MissingFileError(f"{path} does not exist on {where}")
    return TransportError(f"cannot read {path} on {where}: {_last_words(reason)}")


def telling(words: str) -> str | None:
    """Returns the line of a tool's errors that says most: about a disk, else the last; None without any."""
    lines = _lines(words)
    return next(filter(_full_disk, lines), lines[-1] if lines else None)


def room_hint(words: str) -> str | None:
    """Returns the next step where a tool says that a disk is full; None where it says something else."""
    if not _full_disk(words):
        return None
    return (
        "free space there: `clusterkit storage clean` and `clusterkit storage prune` remove what is not "
        "needed any more"
    )


def unwritable(path: str, reason: str, *, where: str) -> TransportError:
    """Returns the error for a file that cannot be written; `reason` is the system's own (English) text."""
    if problem := _full_disk(reason):
        return TransportError(f"{problem} on {where}: cannot write {path}", hint=f"free space on {where}")
    return TransportError(f"cannot write {path} on {where}: {_last_words(reason)}")


def rsync_failed(code: int, stderr: str, *, pulling: bool, where: str) -> TransportError:
    """Returns the error for an rsync that ended with `code`.

    Args:
        code: rsync's exit status.
        stderr: everything rsync and its remote half printed.
        pulling: which side was the receiver.
        where: the remote machine's name.
    """
    lines = _lines(stderr)
    for line in filter(_NO_RSYNC.search, lines):
        return NoRsyncError(
            f"rsync is not installed on {where}: {line}",
            where=where,
            hint="install rsync there, or load the module that provides it in the shell start-up files",
        )
    for line in filter(_OLD_RSYNC.search, lines):
        side = where if _FAR_RSYNC in line else "this machine"
        return NoRsyncError(
            f"rsync on {side} is too old (3.1 or newer is needed): {line}",
            where=side,
            hint="install a newer rsync; macOS ships an old one: brew install rsync",
        )
    for line in filter(_full_disk, lines):  # rsync names the side that suffers and what was being written
        receiver = "this machine" if pulling else where
        return TransportError(
            f"{_full_disk(line)} on {receiver}: {line}",
            hint=f"free space on {receiver}, then run the same command again: it resumes",
        )
    for line in lines:
        if _NOISY_SHELL in line:
            return TransportError(
                f"the login shell on {where} prints text that breaks rsync: {line}",
                hint="silence the shell start-up files there (~/.bashrc, ~/.profile): print only when $- "
                "contains i",
            )
    missing = next(filter(None, map(_MISSING.search, lines)), None)
    if missing and pulling:
        return MissingFileError(f"{missing[1]} does not exist on {where}")
    words = [line for line in lines if not line.startswith("rsync error:")] or lines or ["no message"]
    return TransportError(
        f"copying {'from' if pulling else 'to'} {where} failed (rsync {code}): {words[0]}",
        hint="run the same command again: what has arrived is kept",
    )


def brief(argv: Sequence[str], limit: int = 200) -> str:
    """Returns a command on one line for a message."""
    text = shlex.join(argv).replace("\n", "\\n")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _full_disk(words: str) -> str | None:
    match = _FULL_DISK.search(words)
    return match and ("disk quota exceeded" if match[1] else "no space left on device")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _last_words(text: str) -> str:
    lines = _lines(text)
    return lines[-1].rpartition(": ")[2] if lines else "no reason given"
