"""The run whose process trains all runs of the pack, and what it knows of the others."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TextIO

from trainer.preemption import StopSignals
from trainer.seeds.line import Card, PackLine, output_stream

PATIENCE = 60.0
"""Seconds that the leader waits for another run after the last one that came."""
TICK = 0.1
"""Seconds until a signal is noticed."""
_ALL = 0.5
"""Seconds in which a signal that is meant for all has reached all of them."""


@dataclass
class Guest:
    """A run that follows, as its leader sees it.

    Attributes:
        card: what it was started with.
        output: its standard output.
        stop: the signals that are meant for it, or for all.
        leaves: whether it was sent one itself, or is gone.
        meets: whether it was told, at its end, to meet the others once more; None before.
    """

    card: Card
    output: TextIO
    stop: StopSignals = field(default_factory=StopSignals)
    leaves: bool = False
    meets: bool | None = None


class Leader:
    """The run whose process trains all of them.

    Args:
        card: its own.
        lock: the file that it holds locked.
        door: the socket that it listens at.
        path: of the door.
        stop: signals that its process is sent. It leaves then, and all with it; those that were sent none
            meet again.

    Attributes:
        own: the same signals, as late as the others learn of them.
    """

    def __init__(self, card: Card, lock: int, door: socket.socket, path: Path, stop: StopSignals) -> None:
        self.name, self._lock, self._path, self._stop = card.name, lock, path, stop
        self._door: socket.socket | None = door
        self.own = StopSignals()
        self._begun = False
        self._over = threading.Event()
        self._guests: dict[PackLine, Guest] = {}
        self._waiting: list[PackLine] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(door, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="meeting", daemon=True)

    def gather(self, size: int, patience: float = PATIENCE) -> list[Guest]:
        """Waits for the others, or for a signal; returns those that have come.

        Args:
            size: how many runs there are, this one included.
            patience: seconds to wait for another one after the last that came.
        """
        last, guests = time.monotonic(), 0
        while len(self._guests) < size - 1 and time.monotonic() < last + patience and not self._stop:
            self._look()
            if len(self._guests) != guests:
                last, guests = time.monotonic(), len(self._guests)
        return list(self._guests.values())

    def refuse(self, guest: Guest, why: str) -> None:
        """Lets a run that cannot be trained here train by itself."""
        line = self._line(guest)
        del self._guests[line]
        guest.output.close()
        self._selector.unregister(line.end)
        self._dismiss(line, why)

    def begin(self) -> None:
        """Tells all that have come that they are trained here from now on; their signals are heard."""
        self._begun = True
        for line in self._guests:
            line.send({"begin": self.name, "runs": len(self._guests) + 1})
        self._thread.start()

    def end(self, guest: Guest, code: int, why: str) -> None:
        """Tells a run how it has ended: with code 85 or 130 it has a checkpoint and wants to go on.

        Nothing more can be written for it: who reads what it says would else wait for the end of all.
        """
        guest.output.close()
        guest.meets = bool(self._stop and guest.stop and not guest.leaves)
        again = 0
        if guest.meets:
            # who was told so before has left by now, perhaps
            others = self._guests.values()
            again = sum(not other.leaves if other.meets is None else other.meets for other in others)
            self._shut()  # whoever meets again waits for the lock
        line = self._line(guest)
        line.send({"end": code, "why": why, "again": again})

    def leave(self) -> None:
        """Ends the meeting; those who were told nothing know then that this process is gone."""
        if self._begun:
            self._over.set()
            self._thread.join()
        self._shut()
        for line in (*self._guests, *self._waiting):
            line.close()
        self._selector.close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _line(self, guest: Guest) -> PackLine:
        return next(line for line, other in self._guests.items() if other is guest)

    def _serve(self) -> None:
        alone: float | None = None
        while not self._over.is_set():
            self._look()
            if self._stop and alone is None:
                alone = time.monotonic() + _ALL
            if alone is not None and time.monotonic() > alone:
                for stop in (*(guest.stop for guest in self._guests.values()), self.own):
                    stop.take(self._stop.received or signal.SIGTERM)

    def _look(self) -> None:
        """Hears what there is to hear, for a moment."""
        for key, _ in self._selector.select(TICK):
            if key.data is not None:
                self._hear(key.data)
            elif (door := self._door) is not None:  # which the other thread may shut meanwhile
                self._admit(door)

    def _admit(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):  # who has knocked is gone, or the door has been shut
            end, _ = door.accept()
            line = PackLine(end)
            self._waiting.append(line)
            self._selector.register(end, selectors.EVENT_READ, line)

    def _hear(self, line: PackLine) -> None:
        messages = line.receive()
        guest = self._guests.get(line)
        if messages is None:
            self._selector.unregister(line.end)
            if guest is None:
                self._waiting.remove(line)
                line.close()
            elif self._begun:
                guest.leaves = True
                guest.stop.take(signal.SIGTERM)  # whatever has ended its process, it is to go on from here
            else:
                del self._guests[line]
                line.close()
            return
        for message in messages:
            if guest is not None:
                guest.leaves = True
                guest.stop.take(message["signal"])
            elif self._begun:
                self._waiting.remove(line)
                self._selector.unregister(line.end)
                self._dismiss(line, f"the process of {self.name} has begun without it")
            else:
                self._waiting.remove(line)
                card = Card(message["name"], tuple(message["argv"]), message["environ"])
                guest = self._guests[line] = Guest(card, output_stream(line.descriptors.pop()))

    def _dismiss(self, line: PackLine, why: str) -> None:
        line.send({"alone": why})
        line.close()

    def _shut(self) -> None:
        """Lets nobody in any more."""
        if self._door is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._door)
            self._door.close()
            self._path.unlink(missing_ok=True)
            self._door = None
