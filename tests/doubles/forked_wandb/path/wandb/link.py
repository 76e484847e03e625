"""How the process that has imported wandb is asked to fork."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping, Sequence

ADDRESS = "FORKED_WANDB"
"""The variable that names the parent's socket."""


def ask(address: str, argv: Sequence[str], folder: str, env: Mapping[str, str], files: Sequence[int]) -> int:
    """Have a command line of Python run to its end.

    Args:
        address: of the parent.
        argv: `-m wandb ...` or `-c code ...`.
        folder: where it runs.
        env: all of its environment.
        files: descriptors it gets: the three streams, and others to hold open.

    Returns:
        Its exit code, or less than zero the signal.
    """
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(address)
        socket.send_fds(link, [b"\n"], files)
        link.sendall(json.dumps([[*argv], folder, dict(env)]).encode() + b"\n")
        with link.makefile() as answers:
            return int(answers.readline())
