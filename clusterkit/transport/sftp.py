"""A far machine's side of a transfer without rsync: SFTP on a channel of the open connection.

Bytes and single changes go over SFTP; what SFTP would ask name by name (whole listings, digests) is one
command with GNU find and sha256sum, which every Slurm cluster has.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Sequence

import paramiko

from clusterkit.errors import TransportError, last_words
from clusterkit.transport import faults
from clusterkit.transport.base import ProgressCallback, SyncOptions, Transferred, Transport
from clusterkit.transport.copy_plan import FILE, FOLDER, LINK, CopyEntry, with_parents
from clusterkit.transport.copying import copy
from clusterkit.transport.session import DYING_SECONDS, Session
from clusterkit.transport.sftp_files import SERVER, NoToolsError, SftpFiles, raw_path
from clusterkit.transport.sides import ThisMachine

__all__ = ["SERVER", "NoToolsError", "move"]


def move(
    session: Session,
    transport: Transport,
    source: str,
    target: str,
    options: SyncOptions,
    progress: ProgressCallback | None,
    *,
    pulling: bool,
) -> Transferred:
    """Copy between this machine and that of a transport; see `copying.copy`.

    Args:
        session: runs `SERVER` there.
        transport: runs commands beside it.
        source: absolute path, there when `pulling`.
        target: absolute path, here when `pulling`.
        options: as for rsync.
        progress: called with each report.
        pulling: the way.

    Raises:
        NoToolsError: a tool is missing there.
        TransportError: as `copying.copy`.
    """
    try:
        there, here = There(session, transport), ThisMachine()
        if pulling:
            return copy(there, source, here, target, options, progress, pulling=True)
        return copy(here, source, there, target, options, progress, pulling=False)
    except (TransportError, paramiko.SSHException, EOFError) as error:
        time.sleep(DYING_SECONDS)
        session.check()
        if isinstance(error, TransportError):
            raise
        words = str(error) or "the sftp-server has ended"
        raise TransportError(
            f"copying {'from' if pulling else 'to'} {transport.where} failed: {words}",
            hint="run the same command again: what has arrived is kept",
        ) from error


class There(SftpFiles):
    """The machine at the other end of a session that runs `SERVER`."""

    def __init__(self, session: Session, transport: Transport) -> None:
        """Greet the server; the transport runs commands beside it. Errors as `SftpFiles`."""
        super().__init__(session, where=transport.where)
        self._run = transport.run

    def listing(self, root: str, *, only: Sequence[str] | None = None) -> dict[str, CopyEntry]:
        """See `Side.listing`."""
        if only is None:
            found = self._find(["."], _BELOW, root=root)
            found.pop("", None)
            return found
        parents = sorted(set(with_parents(only)) - set(only))
        return self._find(parents, _ITSELF, root=root) | self._find(only, _BELOW, root=root)

    def entry(self, path: str) -> CopyEntry | None:
        """See `Side.entry`."""
        name = path.strip("/")
        return self._find([name or "."], _ITSELF, root="/").get(name)

    def digests(self, root: str, names: Sequence[str]) -> list[str]:
        """See `Side.digests`."""
        if not names:
            return []
        done = self._run(
            ["sh", "-c", 'cd -- "$1" && exec xargs -0 sha256sum --', "sh", root],
            stdin=b"".join(b"./" + raw_path(name) + b"\0" for name in names),
            timeout=None,
        )
        # sha256sum puts a backslash before a line whose name it has escaped
        found = [line.lstrip("\\")[:64] for line in done.text.split("\n")[:-1]]
        if len(found) != len(names):
            raise TransportError(f"{self.where}: sha256sum gave {len(found)} answers for {len(names)} files")
        return found

    def prefix_digest(self, path: str, size: int) -> str:
        """See `Side.prefix_digest`."""
        script = 'head -c "$2" < "$1" | sha256sum'
        done = self._run(["sh", "-c", script, "sh", path, str(size)], timeout=None)
        return done.text[:64]

    def make_folder(self, path: str) -> None:
        """See `Side.make_folder`."""
        done = self._run(["sh", "-c", 'umask 077; LC_ALL=C mkdir -p -- "$1"', "sh", path], check=False)
        if done.returncode != 0:
            raise OSError(errno.EIO, done.reason.rpartition(": ")[2])

    def _find(self, names: Sequence[str], what: str, *, root: str) -> dict[str, CopyEntry]:
        if not names:
            return {}
        done = self._run(
            ["sh", "-c", _FIND, "sh", root, what],
            stdin=b"".join((b"." if name == "." else b"./" + raw_path(name)) + b"\0" for name in names),
            timeout=None,
            check=False,
        )
        if done.returncode in (126, faults.NOT_FOUND):
            raise NoToolsError(f"{self.where}: {done.reason}")
        serious = [line for line in done.error_text.splitlines() if not _HARMLESS.search(line)]
        if serious:
            raise TransportError(f"{self.where}: {serious[0]}")
        fields = done.stdout.decode("utf-8", "surrogateescape").split("\0")
        found = {}
        for kind, *numbers, target, path in zip(*[iter(fields)] * 6, strict=False):
            name = path.removeprefix(".").removeprefix("/")
            read = _NUMBERS.fullmatch(" ".join(numbers))
            if read is None or not {"", ".", ".."}.isdisjoint(name.split("/") if name else ()):
                said = last_words(" ".join([*numbers, path]))
                raise TransportError(f"{self.where}: what find printed is no listing: {said}")
            found[name] = CopyEntry(
                kind if kind in (FILE, FOLDER, LINK) else "?",
                int(read["mode"], 8),
                int(read["size"]) if kind == FILE else 0,
                int(read["seconds"]) * 1_000_000_000 + int((read["part"] + "0" * 9)[:9]),
                target,
            )
        return found


_NUMBERS = re.compile(
    r"(?P<mode>[0-7]{1,5}) (?P<size>[0-9]{1,18}) (?P<seconds>-?[0-9]{1,11})\.?(?P<part>[0-9]*)"
)


_FIND = 'cd -- "$1" 2>/dev/null || exit 0; exec env LC_ALL=C xargs -0 sh -c "$2" sh'
_PRINT = r"-printf '%y\0%m\0%s\0%T@\0%l\0%p\0'"
_BELOW = f'exec find -P "$@" {_PRINT}'
_ITSELF = f'exec find -L "$@" -maxdepth 0 {_PRINT}'

_HARMLESS = re.compile(r"No such file or directory|Not a directory|File system loop detected")
