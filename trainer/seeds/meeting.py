"""Where a run of a pack finds its place: it leads, or follows the one that does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from trainer.errors import TrainerError
from trainer.preemption import StopSignals
from trainer.seeds.leader import TICK, Leader
from trainer.seeds.line import Card, Ending, PackLine

_LOCK, _DOOR = "lead", "door"
_PATH_BYTES = 100
"""A socket's address has 108 bytes at most, on some systems 104."""


class AloneError(TrainerError):
    """This run is not trained by another's process: it trains by itself, for this reason."""


class Follower:
    """A run that another's process trains."""

    def __init__(self, line: PackLine, stop: StopSignals) -> None:
        self._line, self._stop = line, stop
        self._told: signal.Signals | None = None
        self._heard: list[dict[str, Any]] = []
        self.leader: str | None = None
        self.runs = 0

    def begun(self) -> bool:
        """Waits until the leader has begun; returns False when it has left before, or a signal has come.

        Raises:
            AloneError: this run is to train by itself.
        """
        message = self._next()
        if message is None:
            return False
        if "alone" in message:
            raise AloneError(message["alone"])
        self.leader, self.runs = message["begin"], message["runs"]
        return True

    def ending(self) -> Ending | None:
        """Waits for the end of this run; returns None when the leader is gone without a word."""
        message = self._next()
        if message is None:
            return None
        return Ending(message["end"], message["why"], message["again"])

    def leave(self) -> None:
        """Ends the connection."""
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _next(self) -> dict[str, Any] | None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._line.end, selectors.EVENT_READ)
            while not self._heard:
                if self._stop.received != self._told:
                    self._told = self._stop.received
                    if self.leader is None:
                        return None  # nothing has begun
                    self._line.send({"signal": self._told})
                if selector.select(TICK):
                    messages = self._line.receive()
                    if messages is None:
                        return None
                    self._heard += messages
        return self._heard.pop(0)


def meet(folder: Path, card: Card, stop: StopSignals) -> Leader | Follower | None:
    """Finds this run's place among those that meet in a folder; None when a signal comes before that.

    Args:
        folder: seen by all of them, on one machine.
        card: what this run was started with.
        stop: its signals.

    Raises:
        AloneError: they cannot meet there.
    """
    with contextlib.ExitStack() as held:  # who does not lead must not keep the others from it
        try:
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            held.callback(os.close, lock)
            with _short(folder) as short:
                while not stop:
                    if _locked(lock):
                        leader = _lead(short, folder / _DOOR, lock, card, stop)
                        held.pop_all()
                        return leader
                    follower = _follow(short / _DOOR, card, stop)
                    if follower is not None:
                        return follower
                    time.sleep(TICK)
        except OSError as error:
            raise AloneError(
                f"the runs of the pack cannot meet in {folder}: {error.strerror or error}"
            ) from error
    return None


def _lead(short: Path, path: Path, lock: int, card: Card, stop: StopSignals) -> Leader:
    path.unlink(missing_ok=True)  # of a leader that was killed
    door = socket.socket(socket.AF_UNIX)
    try:
        door.bind(str(short / _DOOR))
        door.listen(64)
    except OSError:
        door.close()
        raise
    door.setblocking(False)
    return Leader(card, lock, door, path, stop)


def _follow(door: Path, card: Card, stop: StopSignals) -> Follower | None:
    """Connects to the leader; None where nobody listens, or not yet."""
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(str(door))
    except (FileNotFoundError, ConnectionRefusedError):
        end.close()
        return None
    line = PackLine(end)
    line.send({"name": card.name, "argv": card.argv, "environ": dict(card.environ)}, [1])
    return Follower(line, stop)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """The folder by a path that a socket's address can hold."""
    if len(os.fsencode(folder)) + len(_DOOR) < _PATH_BYTES:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="meet-") as own:
        short = Path(own) / "f"
        short.symlink_to(folder)
        yield short
