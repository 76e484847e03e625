"""A far machine's side of a transfer without rsync: SFTP on a channel of the open connection.

Bytes and single changes go over SFTP; what SFTP would ask name by name (whole listings, digests) is one
command with GNU find and sha256sum, which every Slurm cluster has.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Sequence
from typing import Protocol

import paramiko

from clusterkit.errors import TransportError
from clusterkit.transport import faults
from clusterkit.transport.base import Completed, ProgressCallback, SyncOptions, Transferred
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, CopyEntry, with_parents
from clusterkit.transport.copying import copy
from clusterkit.transport.session import Session
from clusterkit.transport.sftp_files import SERVER, NoToolsError, SftpFiles, raw_path
from clusterkit.transport.sides import ThisMachine

__all__ = ["SERVER", "NoToolsError", "move"]

_DYING_SECONDS = 0.2
"""A connection closes its channels a moment before it calls itself dead."""


class RunThere(Protocol):
    """`Transport.run`."""

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None, check: bool = True
    ) -> Completed:
        """Run argv there."""
        ...


def move(
    session: Session,
    run: RunThere,
    source: str,
    target: str,
    options: SyncOptions,
    progress: ProgressCallback | None,
    *,
    where: str,
    pulling: bool,
) -> Transferred:
    """Copy between this machine and the one where a session runs `SERVER`; see `copying.copy`."""
    try:
        there, here = There(session, run, where=where), ThisMachine()
        if pulling:
            return copy(there, source, here, target, options, progress, pulling=True)
        return copy(here, source, there, target, options, progress, pulling=False)
    except (TransportError, paramiko.SSHException, EOFError) as error:
        time.sleep(_DYING_SECONDS)
        session.check()
        if isinstance(error, TransportError):
            raise
        words = str(error) or "the sftp-server has ended"
        raise TransportError(
            f"copying {'from' if pulling else 'to'} {where} failed: {words}",
            hint="run the same command again: what has arrived is kept",
        ) from error


class There(SftpFiles):
    """The machine at the other end of a session that runs `SERVER`."""

    def __init__(self, session: Session, run: RunThere, *, where: str) -> None:
        """Greet the server; `run` runs commands beside it. Errors as `SftpFiles`."""
        super().__init__(session, where=where)
        self._run = run

    def listing(self, root: str, *, follow: bool, only: Sequence[str] | None = None) -> dict[str, CopyEntry]:
        """See `Side.listing`."""
        if only is None:
            return self._find(root, ["."], follow=follow, deep=True)
        parents = sorted(set(with_parents(only)) - set(only))
        return {
            **self._find(root, parents, follow=True, deep=False),
            **self._find(root, list(only), follow=follow, deep=True),
        }

    def entry(self, path: str) -> CopyEntry | None:
        """See `Side.entry`."""
        found = self._find(path, ["."], follow=True, deep=False, enter=False)
        return found.get("")

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """See `Side.digests`."""
        if not names:
            return []
        done = self._run(
            ["sh", "-c", 'cd -- "$1" && exec xargs -0 sha256sum --', "sh", root],
            stdin=b"".join(b"./" + raw_path(name) + b"\0" for name in names),
        )
        found = [
            line.lstrip("\\")[:64] for line in done.text.split("\n")[:-1]
        ]  # a backslash: the name is escaped
        if len(found) != len(names):
            raise TransportError(f"{self.where}: sha256sum gave {len(found)} answers for {len(names)} files")
        return found

    def prefix_digest(self, path: str, size: int) -> str:
        """See `Side.prefix_digest`."""
        done = self._run(["sh", "-c", 'head -c "$2" < "$1" | sha256sum', "sh", path, str(size)])
        return done.text[:64]

    def make_folder(self, path: str) -> None:
        """See `Side.make_folder`."""
        done = self._run(["sh", "-c", 'umask 077; LC_ALL=C mkdir -p -- "$1"', "sh", path], check=False)
        if done.returncode != 0:
            raise OSError(errno.EIO, done.reason.rpartition(": ")[2])

    def _find(
        self, root: str, names: Sequence[str], *, follow: bool, deep: bool, enter: bool = True
    ) -> dict[str, CopyEntry]:
        if not names:
            return {}
        script = 'cd -- "$1" 2>/dev/null || exit 0; shift; exec env LC_ALL=C xargs -0 sh -c "$0" sh "$@"'
        follow_option = "-L" if follow else "-P"
        depth = ["-maxdepth", "0"] if not deep else []
        starts = [b"./" + raw_path(name) if name != "." else b"." for name in names]
        if not enter:
            script, starts = 'shift; exec env LC_ALL=C xargs -0 sh -c "$0" sh "$@"', [raw_path(root)]
        done = self._run(
            ["sh", "-c", script, _FIND, root, follow_option, " ".join(depth)],
            stdin=b"".join(start + b"\0" for start in starts),
            check=False,
        )
        if done.returncode in (126, faults.NOT_FOUND):
            raise NoToolsError(f"{self.where}: {done.reason}")
        serious = [line for line in done.error_text.splitlines() if not _HARMLESS.search(line)]
        if serious:
            raise TransportError(f"{self.where}: {serious[0]}")
        fields = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        found = {}
        for kind, mode, size, seconds, target, path in zip(*[iter(fields)] * 6, strict=False):
            name = "" if not enter else path.removeprefix(".").removeprefix("/")
            whole, _, part = seconds.partition(".")
            found[name] = CopyEntry(
                kind if kind in (FILE, FOLDER, LINK) else "?",
                int(mode, 8),
                int(size) if kind == FILE else 0,
                int(whole) * 1_000_000_000 + int((part + "0" * 9)[:9]),
                target,
            )
        if enter:
            found.pop("", None)
        return found


# $1 -L or -P, $2 -maxdepth 0 or nothing; then where to start.
_FIND = r"""
follow=$1 depth=$2; shift 2
exec find $follow "$@" $depth -printf '%y\0%m\0%s\0%T@\0%l\0%p\0'
"""

_HARMLESS = re.compile(r"No such file or directory|Not a directory|File system loop detected")
