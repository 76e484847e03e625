"""Getting argv through a login shell unharmed, and its noise out of the answer. Pure.

sshd hands a command line to the user's login shell, which may be bash, dash, zsh, fish or tcsh.
They agree on no quoting, so the whole script travels as octal escapes inside characters that mean
the same to all of them. What their start-up files print comes before a random marker.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from clusterkit.errors import TransportError

MAX_COMMAND_BYTES = 120_000
"""Linux takes at most 128 KiB in one argument (MAX_ARG_STRLEN), and the command is one."""

_MOST_NOISE = 4 << 20
"""Bytes before the marker; no start-up file means to print more."""
_KEPT_NOISE = 1 << 16
"""Bytes of it that are kept for a message; more than the marker's line."""
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-./:=,+@;&>")


def new_marker() -> str:
    """Returns a marker no start-up file can print by chance."""
    return f"clusterkit-{os.urandom(16).hex()}-"


def wrap(
    argv: Sequence[str],
    marker: str,
    *,
    login_shell: bool = False,
    prepare: str = "",
    terminal: bool = False,
) -> bytes:
    """Returns the command line that makes any login shell run argv, argument by argument as given.

    Standard output and standard error each begin with the marker, the process id and a newline;
    the id stays that of the command, because every shell on the way is replaced by exec.

    Args:
        argv: the program and its arguments; any Unicode, surrogate-escaped bytes included.
        marker: from `new_marker`.
        login_shell: read the login profiles first (`bash -lc`).
        prepare: sh commands that run between the marker and argv.
        terminal: it gets one, so that both streams are one and the marker comes once.

    Raises:
        ValueError: argv is empty or holds a NUL, which no argument can.
        TransportError: it is too long for one command.
    """
    if not argv:
        raise ValueError("an empty command")
    if any("\0" in word for word in argv):
        raise ValueError("an argument contains a NUL")
    head = f"echo {marker}$$; " + ("" if terminal else f"echo {marker}$$ >&2; ")
    script = head + (prepare + "\n" if prepare else "") + "exec " + shlex.join(argv)
    plain = "".join(
        chr(byte) if byte in _PLAIN else f"\\{byte:03o}" for byte in script.encode("utf-8", "surrogateescape")
    )
    shell = "bash -lc" if login_shell else "/bin/sh -c"
    command = f'exec {shell} \'eval "$(printf "{plain}")"\''.encode()
    if len(command) > MAX_COMMAND_BYTES:
        raise TransportError(
            f"the command {argv[0]} is {len(command)} bytes long; at most {MAX_COMMAND_BYTES} can be sent",
            hint="pass long input on standard input",
        )
    return command


class Guard:
    """Takes away everything up to the marker line from a stream that arrives in pieces."""

    def __init__(self, marker: str) -> None:
        # A terminal adds the \r. No process id is longer, and whoever knows the marker may write any number.
        self._pattern = re.compile(re.escape(marker.encode()) + rb"([0-9]{1,10})\r?\n")
        self._held = b""
        self._seen = 0
        self.pid: int | None = None
        """Process id of the remote command, once the marker has come."""

    def feed(self, data: bytes) -> bytes:
        """Returns what of these bytes belongs to the command."""
        if self.pid is not None:
            return data
        self._held += data
        self._seen += len(data)
        line = self._pattern.search(self._held)
        if line is None:
            self._held = self._held[-_KEPT_NOISE:]
            return b""
        self.pid = int(line[1])
        rest, self._held = self._held[line.end() :], b""
        return rest

    @property
    def endless(self) -> bool:
        """Whether so much came in front of the marker that there is no use in waiting for it."""
        return self.pid is None and self._seen > _MOST_NOISE

    @property
    def noise(self) -> str:
        """What came while there was no marker; the reason, when it never came."""
        return self._held.decode("utf-8", "replace").strip()
