"""A far machine's side of a transfer without rsync: SFTP on a channel of the open connection.

Bytes and single changes go over SFTP; what SFTP would ask name by name (whole listings, digests) is one
command with GNU find and sha256sum, which every Slurm cluster has.
"""

from __future__ import annotations

import contextlib
import errno
import re
import time
from collections.abc import Iterator, Sequence
from typing import Protocol

import paramiko
from paramiko.sftp import CMD_EXTENDED, CMD_OPEN, CMD_SETSTAT, SFTP_FLAG_CREATE, SFTP_FLAG_WRITE
from paramiko.sftp_attr import SFTPAttributes

from clusterkit.errors import TransportError
from clusterkit.transport import faults
from clusterkit.transport.base import Completed, ProgressCallback, SyncOptions, Transferred
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, Entry, with_parents
from clusterkit.transport.copying import copy
from clusterkit.transport.session import Session
from clusterkit.transport.sides import Here

_PIECE = 1 << 15
"""What every SFTP server takes in one message (draft-ietf-secsh-filexfer-02, section 3)."""
_DYING_SECONDS = 0.2
"""A connection closes its channels a moment before it calls itself dead."""
_AHEAD = 64
"""Reads that are asked for before the first has come."""


class NoToolsError(TransportError):
    """The far machine lacks what this needs there."""


class Run(Protocol):
    """`Transport.run`."""

    def __call__(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float | None = None, check: bool = True
    ) -> Completed:
        """Run argv there."""
        ...


SERVER = [
    "sh",
    "-c",
    "for server in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib/misc; do "
    'test ! -x "$server/sftp-server" || exec "$server/sftp-server"; done; '
    "exec sftp-server",
]
"""Where systems keep OpenSSH's sftp-server. Run as a command, no start-up file's noise gets into it."""


def move(
    session: Session,
    run: Run,
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
        there, here = There(session, run, where=where), Here()
        if pulling:
            return copy(there, source, here, target, options, progress, pulling=True)
        return copy(here, source, there, target, options, progress, pulling=False)
    except (TransportError, paramiko.SSHException, EOFError) as error:
        time.sleep(_DYING_SECONDS)
        run(["sh", "-c", ":"], check=False)  # where the connection has died, this says so
        if isinstance(error, TransportError):
            raise
        words = str(error) or "the sftp-server has ended"
        raise TransportError(
            f"copying {'from' if pulling else 'to'} {where} failed: {words}",
            hint="Run the same command again: what has arrived is kept.",
        ) from error


class There:
    """The machine at the other end of a session that runs `SERVER`."""

    def __init__(self, session: Session, run: Run, *, where: str) -> None:
        """Greet the server.

        Raises:
            NoToolsError: there is none.
        """
        self.where, self._run = where, run
        try:
            self._sftp = paramiko.SFTPClient(_Channel(session))  # type: ignore[arg-type]
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise NoToolsError(f"{where} has no sftp-server") from error

    def listing(self, root: str, *, follow: bool, only: Sequence[str] | None = None) -> dict[str, Entry]:
        """See `Side.listing`."""
        if only is None:
            return self._find(root, ["."], follow=follow, deep=True)
        parents = sorted(set(with_parents(only)) - set(only))
        return {
            **self._find(root, parents, follow=True, deep=False),
            **self._find(root, list(only), follow=follow, deep=True),
        }

    def entry(self, path: str) -> Entry | None:
        """See `Side.entry`."""
        found = self._find(path, ["."], follow=True, deep=False, enter=False)
        return found.get("")

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """See `Side.digests`."""
        if not names:
            return []
        done = self._run(
            ["sh", "-c", 'cd -- "$1" && exec xargs -0 sha256sum --', "sh", root],
            stdin=b"".join(b"./" + _raw(name) + b"\0" for name in names),
        )
        found = [
            line.lstrip("\\")[:64] for line in done.text.splitlines()
        ]  # a backslash: the name is escaped
        if len(found) != len(names):
            raise TransportError(f"{self.where}: sha256sum gave {len(found)} answers for {len(names)} files")
        return found

    def prefix_digest(self, path: str, size: int) -> str:
        """See `Side.prefix_digest`."""
        done = self._run(["sh", "-c", 'head -c "$2" < "$1" | sha256sum', "sh", path, str(size)])
        return done.text[:64]

    def read(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """See `Side.read`."""
        with self._sftp.open(_raw(path), "rb") as file:
            file.seek(start)
            if end - start > _PIECE:
                file.prefetch(end, _AHEAD)
            while start < end and (data := file.read(min(_PIECE, end - start))):
                start += len(data)
                yield data

    def write(self, path: str, start: int, pieces: Iterator[bytes]) -> None:
        """See `Side.write`."""
        fresh = SFTPAttributes()
        fresh.st_mode = 0o600
        _, answer = self._sftp._request(  # type: ignore[attr-defined]
            CMD_OPEN, _raw(path), SFTP_FLAG_WRITE | SFTP_FLAG_CREATE, fresh
        )
        with paramiko.SFTPFile(self._sftp, answer.get_binary(), "r+b") as file:
            file.set_pipelined(True)
            file.seek(start)
            held = b""
            for piece in pieces:
                for begin in range(0, len(piece), _PIECE):
                    if held:
                        file.write(held)
                    held = piece[begin : begin + _PIECE]
            file.set_pipelined(False)  # the last write waits for the answers to all of them
            if held:
                file.write(held)
            file.truncate(file.tell())

    def settle(self, path: str, mode: int, mtime_ns: int) -> None:
        """See `Side.settle`; both in one message."""
        wanted = SFTPAttributes()
        wanted.st_mode = mode
        wanted.st_atime = wanted.st_mtime = mtime_ns // 1_000_000_000
        self._request(CMD_SETSTAT, _raw(path), wanted)

    def make_folder(self, path: str) -> None:
        """See `Side.make_folder`."""
        done = self._run(["sh", "-c", 'umask 077; LC_ALL=C mkdir -p -- "$1"', "sh", path], check=False)
        if done.returncode != 0:
            raise OSError(errno.EIO, done.reason.rpartition(": ")[2])

    def make_link(self, path: str, target: str) -> None:
        """See `Side.make_link`."""
        self._sftp.symlink(_raw(target), _raw(path))

    def hard_link(self, path: str, old: str) -> None:
        """See `Side.hard_link`; an OpenSSH extension."""
        self._request(CMD_EXTENDED, b"hardlink@openssh.com", _raw(old), _raw(path))

    def rename(self, path: str, new: str) -> None:
        """See `Side.rename`."""
        self._sftp.posix_rename(_raw(path), _raw(new))

    def remove(self, path: str, *, folder: bool) -> None:
        """See `Side.remove`."""
        with contextlib.suppress(FileNotFoundError):
            if not folder:
                self._sftp.remove(_raw(path))
                return
            with contextlib.suppress(OSError):
                self._sftp.rmdir(_raw(path))

    def _request(self, kind: int, *arguments: object) -> None:
        self._sftp._request(kind, *arguments)  # type: ignore[attr-defined]

    def _find(
        self, root: str, names: Sequence[str], *, follow: bool, deep: bool, enter: bool = True
    ) -> dict[str, Entry]:
        if not names:
            return {}
        script = 'cd -- "$1" 2>/dev/null || exit 0; shift; exec env LC_ALL=C xargs -0 sh -c "$0" sh "$@"'
        follow_option = "-L" if follow else "-P"
        depth = ["-maxdepth", "0"] if not deep else []
        starts = [b"./" + _raw(name) if name != "." else b"." for name in names]
        if not enter:
            script, starts = 'shift; exec env LC_ALL=C xargs -0 sh -c "$0" sh "$@"', [_raw(root)]
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
            found[name] = Entry(
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


class _Channel:
    """A session in the shape of the channel paramiko's SFTPClient expects."""

    def __init__(self, session: Session) -> None:
        self._session, self._output, self._rest = session, session.output(), b""

    def send(self, data: bytes) -> int:
        self._session.send(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        while not self._rest:
            try:
                self._rest = next(self._output)
            except StopIteration:
                return b""
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def recv_ready(self) -> bool:
        """True makes paramiko read the answers to its writes whenever a hundred are due."""
        return True

    def get_name(self) -> str:
        return "sftp"

    def close(self) -> None:
        self._session.close()


def _raw(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")
