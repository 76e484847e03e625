"""The background process: logs in, holds the connection, lends it to commands, and ends when nobody comes.

Started by `start`. Its questions during the login go back to the command that started it, over a socket
pair; nothing it is told there is kept, written down or passed on.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from clusterkit.errors import ClusterkitError
from clusterkit.transport.connection import Connection
from clusterkit.transport.kept import messages
from clusterkit.transport.kept.questions import to_message
from clusterkit.transport.kept.relay import UNKNOWN, relay
from clusterkit.transport.link import Screen
from clusterkit.transport.liveness import PROBE_SECONDS
from clusterkit.transport.questions import Question

_TICK_SECONDS = 1.0
_SIGN_OF_LIFE_SECONDS = 5.0
_LAST_WORDS_SECONDS = 2.0
_BREATH_SECONDS = 0.1
_REQUEST_SECONDS = 10.0
_BACKLOG = 64
_IDLE_PROBE_SECONDS = 30.0
"""Between two probes while no command runs: often enough for routers, polite to the login node."""


class Keeper:
    """Serves one connection on one socket."""

    def __init__(self, connection: Connection, path: Path, *, host: str, keep: float) -> None:
        """Listen.

        Args:
            connection: the login to keep.
            path: of the socket; whatever is there is replaced.
            host: as the user named it.
            keep: seconds without a command until it ends.
        """
        self._connection, self._path, self._host, self._keep = connection, path, host, keep
        self._end = threading.Event()
        self._why = "it was ended"
        self._lock = threading.Lock()
        self._guests = 0
        self._leases: set[socket.socket] = set()
        self._idle_since = time.monotonic()
        self._listener = _listen(path)
        self._mine = path.stat().st_ino

    def serve(self) -> None:
        """Serve until the connection dies, nobody has come for long enough, or `stop` is called."""
        threading.Thread(target=self._accept, daemon=True).start()
        while not self._end.wait(min(_TICK_SECONDS, self._keep / 4)):
            if not self._connection.alive:
                self.stop(self._connection.why or UNKNOWN)
            elif self._unused():
                self.stop(f"nobody has used it for {self._keep:.0f} s")
        if self._is_mine():
            self._path.unlink()
        self._listener.close()
        self._connection.end(self._why)
        for guest in list(self._leases):
            with contextlib.suppress(OSError):
                messages.send(guest, {"lost": self._why})
                guest.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + _LAST_WORDS_SECONDS
        while self._guests and time.monotonic() < deadline:
            time.sleep(0.02)

    def stop(self, why: str) -> None:
        """End soon; whoever waits is told why."""
        self._why = why
        self._end.set()

    def _unused(self) -> bool:
        with self._lock:
            idle = time.monotonic() - self._idle_since if not self._guests else 0.0
            # a socket that was removed or replaced lets nobody in any more
            return not self._guests and (idle > self._keep or not self._is_mine())

    def _is_mine(self) -> bool:
        with contextlib.suppress(OSError):
            return self._path.stat().st_ino == self._mine
        return False

    def _accept(self) -> None:
        while not self._end.is_set():
            try:
                guest, _ = self._listener.accept()
            except OSError:  # closed, or too many open files for a moment
                time.sleep(_BREATH_SECONDS)
                continue
            threading.Thread(target=self._host_one, args=(guest,), daemon=True).start()

    def _host_one(self, guest: socket.socket) -> None:
        with guest, self._counted(), contextlib.suppress(OSError, EOFError, ValueError, KeyError):
            if not messages.peer_is_me(guest):
                return
            guest.settimeout(_REQUEST_SECONDS)
            request, descriptors = messages.receive_with_descriptors(guest)
            guest.settimeout(None)
            with contextlib.ExitStack() as stack:
                sockets = [stack.enter_context(one) for one in _sockets(descriptors)]
                if request["want"] == "run" and len(sockets) == 2:
                    screen = Screen(*request["screen"]) if request["screen"] else None
                    command = request["command"].encode("latin-1")
                    relay(self._connection, command, guest, *sockets, screen=screen)
                elif request["want"] == "lease":
                    self._lease(guest, request)
                elif request["want"] == "end":
                    messages.send(guest, {"host": self._host})
                    self.stop("it was ended by `clusterkit logout`")

    def _lease(self, guest: socket.socket, request: messages.Message) -> None:
        answer: messages.Message = {"version": messages.VERSION, "host": self._host}
        if request.get("version") == messages.VERSION:
            if not self._connection.answers(_SIGN_OF_LIFE_SECONDS):  # a laptop may have slept
                messages.send(guest, answer | {"lost": self._connection.why or "the server gives no answer"})
                return
            if request.get("keep") is not None:
                self._keep = float(request["keep"])
        messages.send(guest, answer)
        self._leases.add(guest)
        try:
            guest.recv(1)  # a guest says nothing more; it goes away
        finally:
            self._leases.discard(guest)

    @contextlib.contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._guests += 1
            if self._guests == 1:
                self._connection.liveness.pace(PROBE_SECONDS)
        try:
            yield
        finally:
            with self._lock:
                self._guests -= 1
                self._idle_since = time.monotonic()
                if not self._guests:
                    self._connection.liveness.pace(_IDLE_PROBE_SECONDS)


def _sockets(descriptors: list[int]) -> Iterator[socket.socket]:
    """Descriptors that a guest has sent, as sockets; where one is none, it and those behind it are closed."""
    left = list(descriptors)
    try:
        while left:
            one = socket.socket(fileno=left[0])
            left.pop(0)
            yield one
    finally:
        for rest in left:
            os.close(rest)


def _listen(path: Path) -> socket.socket:
    """A listening socket that only this user may open; it appears under its name when it is ready."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX)
    old = os.umask(0o177)
    try:
        listener.bind(str(fresh))
        listener.listen(_BACKLOG)
        fresh.replace(path)
    finally:
        os.umask(old)
    return listener


def _log_in(control: socket.socket) -> Keeper:
    """Log in as the command at the other end of `control` wishes; it answers the questions."""
    order = messages.receive(control)

    def ask(question: Question) -> Sequence[str]:
        messages.send(control, {"question": to_message(question)})
        return [str(one) for one in messages.receive(control)["answers"]]

    config = order["ssh_config"]
    connection = Connection.open_to(order["host"], ask=ask, ssh_config=Path(config) if config else None)
    try:
        return Keeper(connection, Path(order["path"]), host=order["host"], keep=float(order["keep"]))
    except BaseException:
        connection.close()
        raise


def main(argv: Sequence[str]) -> None:
    """Entry point of the process; the only argument is the descriptor of the socket pair."""
    if os.fork():  # the command that started us need not wait for us
        os._exit(0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no answer may end in a core file
    with socket.socket(fileno=int(argv[1])) as control:
        try:
            keeper = _log_in(control)
        except EOFError:
            return  # whoever should answer is gone
        except ClusterkitError as error:
            messages.send(control, {"failed": error.cause, "hint": error.hint})
            return
        except Exception as error:  # this process has no other way to tell
            messages.send(control, {"broken": f"{type(error).__name__}: {error}"})
            return
        signal.signal(signal.SIGTERM, lambda *_: keeper.stop("the background session was told to end"))
        os.chdir("/")  # else it would hold a file system that is to be unmounted
        messages.send(control, {"ready": True})
    keeper.serve()


if __name__ == "__main__":
    main(sys.argv)
