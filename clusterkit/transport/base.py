"""The transport interface: the only remote I/O there is.

A transport runs argv, reads and writes small files, and moves trees with rsync. `local` and `ssh`
implement it and pass one contract test suite (tests/transport/test_contract.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from clusterkit.errors import TransportError


class MissingFileError(TransportError):
    """A file that was to be read does not exist there."""


@dataclass(frozen=True)
class Completed:
    """A finished remote command."""

    argv: tuple[str, ...]
    returncode: int
    """Exit status; minus the signal number when a signal ended it. Over OpenSSH that is an error instead."""
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output as UTF-8, undecodable bytes replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        """Standard error as UTF-8, undecodable bytes replaced."""
        return self.stderr.decode("utf-8", "replace")

    @property
    def reason(self) -> str:
        """The last line of standard error, where commands say why they failed."""
        return (self.error_text.strip().splitlines() or ["no reason given"])[-1]


class Words:
    """What a program prints on standard error, in pieces: the beginning and the end, however much that is.

    Args:
        most: bytes kept of the beginning, and at least as many of the end.
    """

    def __init__(self, most: int = 2 << 20) -> None:
        self._most = most
        self._first, self._last = bytearray(), bytearray()
        self._lost = False

    def add(self, data: bytes) -> None:
        """Adds a piece."""
        room = self._most - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        if len(self._last) > 2 * self._most:
            self._lost = True
            del self._last[: -self._most]

    @property
    def data(self) -> bytes:
        """All of it, or its beginning and its end, as whole lines where there are any."""
        if not self._lost:
            return bytes(self._first + self._last)
        first, last = self._first.rpartition(b"\n")[0], self._last.partition(b"\n")[2]
        return bytes((first or self._first) + b"\n" + (last or self._last))

    @property
    def text(self) -> str:
        """The same as UTF-8, undecodable bytes replaced."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class TransferProgress:
    """One progress report of a running transfer."""

    done_bytes: int
    total_bytes: int | None
    bytes_per_second: float


@dataclass(frozen=True)
class Transferred:
    """What a finished push or pull moved."""

    files: int
    """Regular files created or changed at the target."""
    bytes: int
    """File bytes sent over the wire as literal data."""


@dataclass(frozen=True)
class SyncOptions:
    """How a tree is moved; each field is one well-known rsync behaviour."""

    exclude: tuple[str, ...] = ()
    """Paths from the top of the source that stay, with all below them, as rsync patterns: "/name", with a
    slash at the end for a folder only, and with `*` for any part of a name."""
    files_from: tuple[str, ...] | None = None
    """Relative paths to move, instead of everything below the source."""
    files_only: bool = False
    """With `files_from`: regular files and the folders they lie in; no link, and nothing below them."""
    max_size: int | None = None
    """Leave out files that are larger, bytes."""
    delete: bool = False
    """Remove what the source does not have."""
    link_dest: tuple[str, ...] = ()
    """Hard-link unchanged files against these folders of the receiving side, the first that has them."""
    inplace: bool = False
    """Update files in place, so that a reader keeps its handle and an interrupted file is resumed. Together
    with `link_dest` a lost connection is an error: a second try could write to files that are shared."""
    append: bool = False
    """Send only the tails of files that have grown; implies in-place."""
    checksum: bool = False
    """Compare by content instead of by size and time."""
    bandwidth_limit: int | None = None
    """Bytes per second at most."""
    mode: str | None = None
    """rsync --chmod value, e.g. "D700,F600"."""


ProgressCallback = Callable[[TransferProgress], None]
Bar = Callable[[str, int | None], AbstractContextManager[ProgressCallback]]
"""Opens a progress bar: label, total bytes."""


class Conversation(Protocol):
    """A running command whose standard input and output are a stream in both directions."""

    def send(self, data: bytes) -> None:
        """Sends a piece of standard input. Raises OSError when the command no longer listens."""
        ...

    def output(self) -> Iterator[bytes]:
        """Standard output as it comes."""
        ...

    def wait(self) -> int:
        """Returns the exit status, as of `Completed`, once standard output has ended.

        Raises:
            TransportError: the connection failed.
        """
        ...


class Transport(Protocol):
    """One connection to one machine. Remote paths are absolute POSIX strings."""

    @property
    def where(self) -> str:
        """The machine's name for messages, e.g. `datalab` or `this machine`."""
        ...

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        """Runs argv there; no shell sees it, every argument arrives unchanged.

        Raises:
            TransportError: the connection failed, the time (seconds) ran out, or `check` and the
                command failed; then the message holds the last line of its standard error.
        """
        ...

    def stream(self, argv: Sequence[str], *, hold_input: bool = False) -> Iterator[bytes]:
        """Runs argv and yields its standard output as it comes; closing the iterator ends the command.

        Args:
            argv: the command.
            hold_input: its standard input ends when this process does, in whatever way; else at once.

        Raises:
            TransportError: the connection failed, or the command ended with another status than 0.
        """
        ...

    def talk(
        self, argv: Sequence[str], *, on_error: Callable[[bytes], object]
    ) -> AbstractContextManager[Conversation]:
        """Runs argv and holds both its streams; leaving the context ends its standard input, at least.

        Args:
            argv: the command.
            on_error: given its standard error as it comes.

        Raises:
            TransportError: the connection failed.
        """
        ...

    def attach(self, argv: Sequence[str], *, terminal: bool, hold_input: bool = False) -> int:
        """Runs argv on this process's own streams and returns its exit status, as of `Completed`.

        Args:
            argv: the command.
            terminal: it gets a terminal that is this process's: keys go to it as they are typed, Ctrl-C
                among them, and it learns the size. Without one there is nothing to read.
            hold_input: as for `stream`, where it gets no terminal.

        Raises:
            TransportError: the connection failed, or there is no terminal to lend.
        """
        ...

    def read(self, path: str) -> bytes:
        """Returns a whole small file.

        Raises:
            MissingFileError: there is no such file.
            TransportError: it cannot be read, or the connection failed.
        """
        ...

    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces a small private file atomically: temporary file, fsync, rename.

        Missing parent folders are created with mode 0700.
        """
        ...

    def push(
        self,
        source: Path,
        target: str,
        *,
        options: SyncOptions = SyncOptions(),
        progress: ProgressCallback | None = None,
    ) -> Transferred:
        """Copies a local file onto a remote file, or a folder's contents into a remote folder.

        Missing parent folders are created with mode 0700. Interrupted, it resumes when run again.

        Raises:
            TransportError: a side is missing or full, rsync is missing, or the connection failed.
        """
        ...

    def pull(
        self,
        source: str,
        target: Path,
        *,
        options: SyncOptions = SyncOptions(),
        progress: ProgressCallback | None = None,
    ) -> Transferred:
        """Copies a remote file onto a local file, or a folder's contents into a local folder.

        A source that ends with a slash is known to be a folder, which saves asking. Symbolic links
        that point out of the tree are skipped. Interrupted, it resumes when run again.

        Raises:
            MissingFileError: the source does not exist.
            TransportError: a side is full, rsync is missing, or the connection failed.
        """
        ...

    def close(self) -> None:
        """Ends the connection. Safe to call twice."""
        ...


@dataclass(frozen=True)
class Move:
    """One transfer, between this machine and a transport's."""

    source: str
    """Absolute path; of the transport's machine when `pulling`."""
    target: str
    """Absolute path; of this machine when `pulling`."""
    options: SyncOptions
    progress: ProgressCallback | None
    pulling: bool
    """Whether the source is the side that is not trusted: links that leave its tree are skipped."""


class TreeMover(ABC):
    """Implements `Transport.push` and `Transport.pull`."""

    def push(
        self,
        source: Path,
        target: str,
        *,
        options: SyncOptions = SyncOptions(),
        progress: ProgressCallback | None = None,
    ) -> Transferred:
        """See `Transport.push`."""
        if not source.exists():
            raise MissingFileError(f"{source} does not exist on this machine")
        return self._move(Move(str(source.absolute()), target, options, progress, pulling=False))

    def pull(
        self,
        source: str,
        target: Path,
        *,
        options: SyncOptions = SyncOptions(),
        progress: ProgressCallback | None = None,
    ) -> Transferred:
        """See `Transport.pull`."""
        return self._move(Move(source, str(target.absolute()), options, progress, pulling=True))

    @abstractmethod
    def _move(self, move: Move) -> Transferred:
        """Carries out a transfer, with rsync where both machines have it."""
