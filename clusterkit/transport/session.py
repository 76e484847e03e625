"""One command on one channel of an open connection: streams kept apart, noise removed, its end told."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from clusterkit.errors import TransportError, last_words
from clusterkit.transport import remote_shell
from clusterkit.transport.base import Words
from clusterkit.transport.faults import LostError, NotStartedError
from clusterkit.transport.link import Channel, ChannelRefusedError, DownError, Link, Screen

DYING_SECONDS = 0.2
"""A connection closes its channels a moment before it calls itself dead."""
_END_SECONDS = 5.0

_END_SCRIPT = """
kill -s TERM -- "-$1" 2>/dev/null || kill -s TERM "$1" 2>/dev/null || exit 0
for _ in 1 2 3 4 5; do
    kill -s 0 -- "-$1" 2>/dev/null || exit 0
    sleep 0.1
done
kill -s KILL -- "-$1" 2>/dev/null
exit 0
"""


class TimeUp(Exception):  # noqa: N818 - not an error by itself
    """The deadline of a session has passed."""


class Session:
    """A remote command: `start` it, and `close` it in any case.

    The constructor does no I/O, so that whoever starts a session holds it, and can end what it started,
    whenever a signal arrives.
    """

    def __init__(
        self,
        link: Link,
        argv: Sequence[str],
        *,
        where: str,
        login_shell: bool,
        timeout: float | None = None,
        prepare: str = "",
        screen: Screen | None = None,
        on_error: Callable[[bytes], object] | None = None,
    ) -> None:
        """Prepares the command.

        Args:
            link: the connection.
            argv: the command.
            where: the machine's name for messages.
            login_shell: read the login profiles first.
            timeout: seconds until `output` and `wait` raise TimeUp.
            prepare: sh commands to run before argv.
            screen: the terminal it gets; its standard error then comes with its output.
            on_error: given its standard error as it comes, which is then not kept.

        Raises:
            TransportError: the command is too long.
        """
        self.argv = tuple(argv)
        self._link, self._where = link, where
        self._deadline = None if timeout is None else time.monotonic() + timeout
        marker = remote_shell.new_marker()
        self._out, self._err = remote_shell.Guard(marker), remote_shell.Guard(marker)
        self._words = Words()
        self._on_error = on_error or self._words.add
        self._command = remote_shell.wrap(
            argv, marker, login_shell=login_shell, prepare=prepare, terminal=screen is not None
        )
        self._screen = screen
        # Not in the caller's thread: what it starts must be known even when that thread is interrupted.
        self._listener = threading.Thread(target=self._open_and_listen, daemon=True)
        self._opened: Channel | Exception | None = None
        self._known = threading.Event()

    def start(self) -> None:
        """Opens the channel and starts the command.

        Raises:
            NotStartedError: the connection is dead, and was before.
            LostError: the connection has died on the way.
            TransportError: the server refuses another channel.
        """
        self._listener.start()
        self._known.wait()
        opened = self._opened
        if isinstance(opened, DownError):
            raise self._lost(LostError if opened.started else NotStartedError) from opened
        if isinstance(opened, ChannelRefusedError):
            raise TransportError(
                f"{self._where} refuses another command on this connection: {opened}",
                hint="the server allows only a few sessions at a time (MaxSessions); end other commands "
                "first",
            ) from opened
        if isinstance(opened, Exception):
            raise opened

    def feed(self, data: bytes) -> None:
        """Sends all of standard input, in the background where it is more than nothing."""
        if data:
            threading.Thread(target=self._feed, args=(data,), daemon=True).start()
        else:
            self.end_input()

    def send(self, data: bytes) -> None:
        """Sends a piece of standard input. Raises OSError when the command no longer listens."""
        self._channel.send(data)

    def end_input(self) -> None:
        """Lets the command see the end of its standard input."""
        self._channel.end_input()

    def resize(self, screen: Screen) -> None:
        """Tells the command the new size of its terminal."""
        self._channel.resize(screen)

    def output(self) -> Iterator[bytes]:
        """Standard output as it comes.

        Raises:
            TimeUp: the deadline has passed.
            TransportError: there is no end of what the start-up files there print.
        """
        while not self._endless and (data := self._receive()):
            if clean := self._out.feed(data):
                yield clean
        if self._endless:
            self.close()
            raise self._never_started(None)

    def wait(self) -> int:
        """Returns the exit status, once standard output has ended; minus the signal number for a signal.

        Raises:
            TimeUp: the deadline has passed.
            LostError: the connection died.
            TransportError: the command was cut off or never started.
        """
        if self._endless:
            raise self._never_started(None)
        self._listener.join(self._left())
        if self._listener.is_alive():
            raise TimeUp
        try:
            status = self._channel.wait(self._left())
        except TimeoutError:
            raise TimeUp from None
        if status is None:
            time.sleep(DYING_SECONDS)
            self.check()
        if self._out.pid is None:
            raise self._never_started(status)
        if status is None:
            raise TransportError(
                f"{self.argv[0]} was interrupted on {self._where}: by a signal, or because its channel was "
                "closed",
                hint="run the same command again",
            )
        return status

    def check(self) -> None:
        """Looks whether the connection is still there.

        Raises:
            LostError: it died.
        """
        if not self._link.alive:
            raise self._lost()

    def error_bytes(self) -> bytes:
        """Standard error, as `Words` keeps it; complete after `wait`."""
        return self._words.data

    def close(self) -> None:
        """Closes the channel. A command that reads or writes will notice; others run on: see `end`."""
        if self._opened is not None and not isinstance(self._opened, Exception):
            self._opened.close()

    def end(self) -> None:
        """Ends the command itself, as far as the connection still allows.

        sshd makes every command the leader of a session, so its group has its process id. A command that was
        being started at this moment is waited for.
        """
        if not self._known.wait(_END_SECONDS) or isinstance(self._opened, Exception):
            return
        pid = self._pid()
        self.close()
        if pid is None or not self._link.alive:
            return
        with contextlib.suppress(TransportError, TimeUp):
            killer = Session(
                self._link,
                ["sh", "-c", _END_SCRIPT, "sh", str(pid)],
                where=self._where,
                login_shell=False,
                timeout=_END_SECONDS,
            )
            with contextlib.closing(killer):
                killer.start()
                killer.end_input()
                killer.wait()

    @property
    def _channel(self) -> Channel:
        assert self._opened is not None
        assert not isinstance(self._opened, Exception)
        return self._opened

    @property
    def _endless(self) -> bool:
        """Whether the start-up files there print without end, on either stream."""
        return self._out.endless or self._err.endless

    def _pid(self) -> int | None:
        """Returns the command's process id, the first that it tells; waits for that unless its time is up."""
        until = time.monotonic() + (0.0 if self._left() == 0.0 else _END_SECONDS)
        while not (pid := self._out.pid or self._err.pid) and self._listener.is_alive():
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        return pid

    def _lost(self, kind: type[LostError] = LostError) -> LostError:
        why = self._link.why or "the server or the network ended it"
        return kind(
            f"the connection to {self._where} died: {why}",
            hint="run the same command again; nothing is done twice",
        )

    def _never_started(self, status: int | None) -> TransportError:
        noise = f"{self._err.noise}\n{self._out.noise}"
        ending = "its channel was closed" if status is None else f"status {status}"
        ending = "its shell prints without end" if self._endless else ending
        words = f": {last_words(noise)}" if noise.strip() else ""
        if "\x1e" in noise or (status == 0 and not words):  # something else has read what was for the command
            return TransportError(
                f"{self._where} did not run the command ({ending}): a start-up file of the shell there "
                "(~/.bashrc, ~/.zshenv, ...) starts another program instead, or ends the shell",
                hint="allow that in interactive shells only, e.g. `case $- in *i*) exec zsh ;; esac`",
            )
        return TransportError(
            f"{self._where} did not run the command ({ending}){words}",
            hint="a shell start-up file there may exit or fail, or the account may be restricted: try it "
            "by hand",
        )

    def _left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def _receive(self) -> bytes:
        left = self._left()
        if left == 0.0:
            raise TimeUp
        try:
            return self._channel.receive(left)
        except TimeoutError:
            raise TimeUp from None

    def _feed(self, data: bytes) -> None:
        try:
            self.send(data)
        except OSError:
            return  # the command ended without reading it all, or its time is up; `wait` says which
        self.end_input()

    def _open_and_listen(self) -> None:
        try:
            self._opened = self._link.open(self._command, self._screen)
        except Exception as error:
            self._opened = error
        self._known.set()
        if isinstance(self._opened, Exception):
            return
        while data := self._channel.receive_error():
            if clean := self._err.feed(data):
                self._on_error(clean)
            if self._endless:  # whoever waits for output learns it, because the channel is closed
                self.close()
                return
