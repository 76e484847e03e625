"""Ports for servers that a test starts."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

_tried = itertools.count()


def free_port() -> int:
    """A port that nobody takes before the server it is for does.

    Below those that the kernel hands out, and at another place for each process that runs tests.
    """
    while True:
        port = 10_000 + (os.getpid() * 997 + next(_tried)) % 20_000
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
