"""The transport over ssh: one login, and every command, file and transfer rides on it.

When the connection dies, what may be done twice is done again over a new one, as long as that login
asks nothing. A command is never run twice: whoever started it learns that its end is not known.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from clusterkit.errors import TransportError
from clusterkit.transport import faults
from clusterkit.transport.base import Completed, MissingFileError, Move, SyncOptions, Transferred, TreeMover
from clusterkit.transport.link import Link
from clusterkit.transport.session import Session, TimeUp

_MAX_SESSIONS = 8
"""Commands at the same time; OpenSSH's server allows 10 (MaxSessions), and `end` may need one more."""

_MOST_BYTES = 256 << 20
"""Output of a command that is read as a whole: some million lines."""

_RESUMES = 8
"""New logins in the middle of one transfer; a link that dies more often needs a person."""

_FILE_SECONDS = 300.0
_NOT_A_FOLDER, _ABSENT = 10, 11

_WRITE = """
set -u
umask 077
mkdir -p -- "$2" || exit 1
if [ -d "$1" ]; then echo "Is a directory" >&2; exit 1; fi
cat > "$3" && [ "$(($(wc -c < "$3")))" -eq "$4" ] &&
    { sync "$3" 2>/dev/null || sync; } && mv -f -- "$3" "$1" && exit 0
rm -f -- "$3"
exit 1
"""
"""Arguments: path, folder, temporary path, size; a cut connection ends `cat` early, hence the size."""

_KIND = f'[ -d "$1" ] && exit 0; [ -e "$1" ] && exit {_NOT_A_FOLDER}; exit {_ABSENT}'

T = TypeVar("T")


class SshTransport(TreeMover):
    """A machine reached by ssh. Safe to use from several threads."""

    def __init__(
        self,
        link: Link,
        *,
        where: str,
        login_shell: bool = False,
        again: Callable[[str | None], Link] | None = None,
    ) -> None:
        """Wraps a connection; `again` logs in anew and is given why the last one died."""
        self._link, self._where, self._login_shell, self._again = link, where, login_shell, again
        self._mending = threading.Lock()
        self._slots = threading.BoundedSemaphore(_MAX_SESSIONS)
        self._no_rsync: faults.NoRsyncError | None = None

    @property
    def where(self) -> str:
        """The host as the user named it."""
        return self._where

    def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        timeout: float | None = 60.0,
        check: bool = True,
    ) -> Completed:
        """See `Transport.run`; a timeout ends the remote process group."""
        with self._session(argv, timeout=timeout) as session:
            try:
                session.feed(stdin)
                stdout = b"".join(self._bounded(session.output(), argv))
                status = session.wait()
            except TimeUp:
                session.end()
                raise faults.timed_out(argv, timeout or 0.0, where=self._where) from None
            completed = Completed(tuple(argv), status, stdout, session.error_bytes())
        if check and status != 0:
            raise faults.command_failed(completed, where=self._where)
        return completed

    def _bounded(self, output: Iterator[bytes], argv: Sequence[str]) -> Iterator[bytes]:
        """Passes on what a command prints, unless it has no end."""
        room = _MOST_BYTES
        for data in output:
            room -= len(data)
            if room < 0:
                raise TransportError(
                    f"{argv[0]} on {self._where} printed more than {_MOST_BYTES >> 20} MiB and was stopped",
                    hint=f"the command was: {faults.brief(argv)}",
                )
            yield data

    def stream(self, argv: Sequence[str], *, hold_input: bool = False) -> Iterator[bytes]:
        """See `Transport.stream`."""
        with self._session(argv) as session:
            if not hold_input:
                session.end_input()
            yield from session.output()
            status = session.wait()
            completed = Completed(tuple(argv), status, b"", session.error_bytes())
        if status != 0:
            raise faults.command_failed(completed, where=self._where)

    def talk(
        self, argv: Sequence[str], *, on_error: Callable[[bytes], object]
    ) -> contextlib.AbstractContextManager[Session]:
        """See `Transport.talk`."""
        return self._session(argv, on_error=on_error)

    def attach(self, argv: Sequence[str], *, terminal: bool, hold_input: bool = False) -> int:
        """See `Transport.attach`."""
        from clusterkit.transport import terminal as streams  # deferred: most commands only run something

        if terminal:
            with streams.raw_terminal() as screen, self._session(argv, screen=screen) as session:
                return streams.show_on_terminal(session)
        with self._session(argv, on_error=streams.write_error) as session:
            return streams.show_output(session, hold_input=hold_input)

    def read(self, path: str) -> bytes:
        """See `Transport.read`."""
        answer = self._run_again(["env", "LC_ALL=C", "cat", "--", path], timeout=_FILE_SECONDS)
        if answer.returncode != 0:
            raise faults.unreadable(path, answer.error_text, where=self._where)
        return answer.stdout

    def write(self, path: str, data: bytes) -> None:
        """See `Transport.write`."""
        folder, name = posixpath.split(path)
        temporary = posixpath.join(folder, f".{name[:64]}.{os.urandom(8).hex()}")
        arguments = [path, folder or "/", temporary, str(len(data))]
        argv = ["env", "LC_ALL=C", "sh", "-c", _WRITE, "sh", *arguments]
        answer = self._run_again(argv, stdin=data, timeout=_FILE_SECONDS)
        if answer.returncode != 0:
            raise faults.unwritable(path, answer.error_text, where=self._where)

    def _move(self, move: Move) -> Transferred:
        """Moves with rsync, or as tar where a machine has none."""
        from clusterkit.transport import rsync

        try:
            if self._no_rsync is not None:  # found before; the far side is not asked again
                raise self._no_rsync
            rsync.find_rsync()
            return self._with_rsync(move)
        except faults.NoRsyncError as missing:
            if missing.where == self._where:
                self._no_rsync = missing
            return self._without_rsync(move, missing)

    def _with_rsync(self, move: Move) -> Transferred:
        from clusterkit.transport import tunnel

        folder = self._is_folder(move.source) if move.pulling else Path(move.source).is_dir()
        transfer = partial(tunnel.transfer, self._session, move, folder=folder, where=self._where)
        return self._mending_unless_shared(transfer, move.options)

    def _is_folder(self, path: str) -> bool:
        if path.endswith("/"):  # which saves asking
            return True
        kind = self._run_again(["sh", "-c", _KIND, "sh", path])
        if kind.returncode == _ABSENT:
            raise MissingFileError(f"{path} does not exist on {self._where}")
        return kind.returncode == 0

    def _without_rsync(self, move: Move, missing: faults.NoRsyncError) -> Transferred:
        from clusterkit.transport.copying import copy, say_once
        from clusterkit.transport.sides import ThisMachine
        from clusterkit.transport.tarred import There

        say_once(missing.cause)
        sides = (There(self, self._session, missing), ThisMachine())
        source, target = sides if move.pulling else reversed(sides)
        return self._mending_unless_shared(partial(copy, source, target, move), move.options)

    def close(self) -> None:
        """See `Transport.close`."""
        with self._mending:
            self._again = None
            self._link.close()

    def _living(self) -> Link:
        """Returns the connection; a new one where the last has died."""
        with self._mending:
            if not self._link.alive and self._again is not None:
                self._link.close()
                self._link = self._again(self._link.why)
            return self._link

    def _mending_unless_shared(
        self, transfer: Callable[[], Transferred], options: SyncOptions
    ) -> Transferred:
        """Moves; goes on over a new connection unless that could reach files that are shared."""
        return transfer() if options.inplace and options.link_dest else self._resuming(transfer)

    def _resuming(self, work: Callable[[], T]) -> T:
        """Does what may be done twice; does it again whenever the connection dies under it."""
        for _ in range(_RESUMES):
            try:
                return work()
            except faults.LostError:
                if self._again is None:
                    raise
        return work()

    def _run_again(self, argv: Sequence[str], **how: Any) -> Completed:
        """Runs what may be run twice, whatever it exits with; again whenever the connection dies under it."""
        return self._resuming(lambda: self.run(argv, check=False, **how))

    @contextlib.contextmanager
    def _session(self, argv: Sequence[str], **how: Any) -> Iterator[Session]:
        """Runs argv on a channel, and ends it when this process is interrupted.

        Args:
            argv: the command.
            how: the other arguments of `Session`.
        """

        def prepared() -> Session:
            return Session(self._living(), argv, where=self._where, login_shell=self._login_shell, **how)

        with self._slots:
            session = prepared()
            try:
                try:
                    session.start()
                except faults.NotStartedError:
                    if self._again is None:
                        raise
                    session = prepared()
                    session.start()
                yield session
            except (GeneratorExit, KeyboardInterrupt, SystemExit):  # Ctrl-C, or a signal that ends us
                session.end()
                raise
            finally:
                session.close()
