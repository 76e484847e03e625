"""Files over SFTP: an sftp-server that runs on a session, and paramiko's client of it.

No thread of paramiko's own is involved: it would die with a traceback when the link does.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator

import paramiko
from paramiko.sftp import (
    CMD_EXTENDED,
    CMD_OPEN,
    CMD_READ,
    CMD_SETSTAT,
    SFTP_FLAG_CREATE,
    SFTP_FLAG_WRITE,
    int64,
)
from paramiko.sftp_attr import SFTPAttributes

from clusterkit.errors import TransportError
from clusterkit.transport.session import Session

_PIECE = 1 << 15
"""What every SFTP server takes in one message (draft-ietf-secsh-filexfer-02, section 3)."""
_AHEAD = 64
"""Reads that are asked for before the first has come."""

SERVER = [
    "sh",
    "-c",
    "for server in /usr/lib/openssh /usr/libexec/openssh /usr/lib/ssh /usr/libexec /usr/lib/misc; do "
    'test ! -x "$server/sftp-server" || exec "$server/sftp-server"; done; '
    "exec sftp-server",
]
"""Where systems keep OpenSSH's sftp-server. Run as a command, no start-up file's noise gets into it."""


class NoToolsError(TransportError):
    """The far machine lacks what this needs there."""


class SftpFiles:
    """The part of a `Side` that SFTP has messages for."""

    def __init__(self, session: Session, *, where: str) -> None:
        """Greet the server.

        Args:
            session: runs `SERVER`.
            where: the machine's name for messages.

        Raises:
            NoToolsError: there is none.
        """
        self.where = where
        self._channel = _SftpChannel(session)
        try:
            self._sftp = paramiko.SFTPClient(self._channel)  # type: ignore[arg-type]
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise NoToolsError(f"{where} has no sftp-server") from error

    def read(self, path: str, start: int, end: int) -> Iterator[bytes]:
        """See `Side.read`."""
        with self._sftp.open(raw_path(path), "rb") as file:
            asked: deque[tuple[int, int]] = deque()
            position = start
            while position < end:
                while len(asked) < _AHEAD and start < end:
                    size = min(_PIECE, end - start)
                    asked.append((self._ask_for(file, start, size), size))
                    start += size
                number, size = asked.popleft()
                data = self._answer(number)
                if data:
                    yield data
                    position += len(data)
                if len(data) < size:  # the file is shorter now, or the server gives less at a time
                    for number, _ in asked:
                        self._answer(number)
                    asked.clear()
                    if not data:
                        return
                    start = position

    def _ask_for(self, file: paramiko.SFTPFile, start: int, size: int) -> int:
        # paramiko's own prefetch does this in a thread, which dies with a traceback when the link does
        kind, handle = type(None), file.handle
        number: int = self._sftp._async_request(  # type: ignore[attr-defined]
            kind, CMD_READ, handle, int64(start), size
        )
        return number

    def _answer(self, number: int) -> bytes:
        """OpenSSH's server answers in order. Nothing at the end of the file."""
        try:
            _, message = self._sftp._read_response(number)  # type: ignore[attr-defined]
        except EOFError:
            if self._channel.ended:
                raise
            return b""
        data: bytes = message.get_string()
        return data

    def write(self, path: str, start: int, pieces: Iterator[bytes]) -> None:
        """See `Side.write`."""
        fresh = SFTPAttributes()
        fresh.st_mode = 0o600
        _, answer = self._sftp._request(  # type: ignore[attr-defined]
            CMD_OPEN, raw_path(path), SFTP_FLAG_WRITE | SFTP_FLAG_CREATE, fresh
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
        self._request(CMD_SETSTAT, raw_path(path), wanted)

    def make_link(self, path: str, target: str) -> None:
        """See `Side.make_link`."""
        self._sftp.symlink(raw_path(target), raw_path(path))

    def hard_link(self, path: str, old: str) -> None:
        """See `Side.hard_link`; an OpenSSH extension."""
        self._request(CMD_EXTENDED, b"hardlink@openssh.com", raw_path(old), raw_path(path))

    def rename(self, path: str, new: str) -> None:
        """See `Side.rename`."""
        self._sftp.posix_rename(raw_path(path), raw_path(new))

    def remove(self, path: str, *, folder: bool) -> None:
        """See `Side.remove`."""
        with contextlib.suppress(FileNotFoundError):
            if not folder:
                self._sftp.remove(raw_path(path))
                return
            with contextlib.suppress(OSError):
                self._sftp.rmdir(raw_path(path))

    def _request(self, kind: int, *arguments: object) -> None:
        self._sftp._request(kind, *arguments)  # type: ignore[attr-defined]


class _SftpChannel:
    """A session in the shape of the channel paramiko's SFTPClient expects."""

    def __init__(self, session: Session) -> None:
        self._session, self._output, self._rest = session, session.output(), b""
        self.ended = False

    def send(self, data: bytes) -> int:
        self._session.send(data)
        return len(data)

    def recv(self, size: int) -> bytes:
        while not self._rest:
            try:
                self._rest = next(self._output)
            except StopIteration:
                self.ended = True
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


def raw_path(path: str) -> bytes:
    """A path as the file system has it; paramiko would refuse what is no Unicode."""
    return path.encode("utf-8", "surrogateescape")
