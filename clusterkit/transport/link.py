"""An authenticated connection, as commands see it: whoever holds it, it opens channels.

`connection` implements it over paramiko in this process, `openssh.link` over the control socket of an
OpenSSH master. `session` and `ssh` build everything else on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

CHUNK = 1 << 18
"""Bytes read at once, at most."""


class DownError(Exception):
    """The connection is dead; the text says why, where that is known."""

    def __init__(self, why: str = "", *, started: bool = False) -> None:
        super().__init__(why)
        self.started = started
        """Whether the command may have been started nevertheless."""


class ChannelRefusedError(Exception):
    """The connection lives, and the server opens no further channel."""


@dataclass(frozen=True)
class Screen:
    """A terminal, as a command over there shall see it."""

    kind: str
    """Value of TERM, e.g. `xterm-256color`."""
    columns: int
    rows: int


class Channel(Protocol):
    """One command line that runs over there."""

    def send(self, data: bytes) -> None:
        """Sends a piece of standard input. Raises OSError when the command no longer listens."""
        ...

    def end_input(self) -> None:
        """Lets the command see the end of its standard input. Does nothing when it has ended already."""
        ...

    def receive(self, timeout: float | None) -> bytes:
        """Returns a piece of standard output; empty at its end. Raises TimeoutError after so many seconds."""
        ...

    def receive_error(self) -> bytes:
        """Returns a piece of standard error; empty at its end."""
        ...

    def resize(self, screen: Screen) -> None:
        """Tells the command the new size of its terminal. Does nothing when it has ended already."""
        ...

    def wait(self, timeout: float | None) -> int | None:
        """Returns the exit status, minus the signal number for a signal; None when it was never told.

        Raises TimeoutError after `timeout` seconds.
        """
        ...

    def close(self) -> None:
        """Hangs up. Safe to call twice, and from another thread."""
        ...


class Link(Protocol):
    """One authenticated connection. Safe to use from several threads."""

    @property
    def alive(self) -> bool:
        """Whether it can still carry a command, as far as is known by now."""
        ...

    @property
    def why(self) -> str | None:
        """Why it died, where that is known."""
        ...

    def open(self, command: bytes, screen: Screen | None = None) -> Channel:
        """Starts a command line, on a terminal of its own where a screen is given.

        On a terminal its standard error comes with its standard output.

        Raises:
            DownError: the connection is dead.
            ChannelRefusedError: the server opens no further channel.
        """
        ...

    def close(self) -> None:
        """Lets go of the connection. Safe to call twice."""
        ...
