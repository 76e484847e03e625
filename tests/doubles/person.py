"""A person at a terminal: types commands, reads prompts, and answers them."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def type_at_terminal(
    argv: Sequence[str],
    answers: Mapping[str, Callable[[], str]],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command on a terminal of its own.

    Args:
        argv: the command.
        answers: what to type when a text appears; every time it appears.
        folder: where it runs.
        environment: all of it.
        seconds: until it is killed.

    Returns:
        Its exit status and everything the terminal has shown.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execve(argv[0], list(argv), dict(environment))
    seen, answered, deadline = b"", 0, time.monotonic() + seconds
    while time.monotonic() < deadline and select.select([terminal], [], [], deadline - time.monotonic())[0]:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # Linux: the other side has closed
            break
        if not data:
            break
        seen += data
        for text, answer in answers.items():
            if text.encode() in seen[answered:]:
                answered = len(seen)
                os.write(terminal, answer().encode() + b"\n")
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return subprocess.CompletedProcess(list(argv), status, seen.decode("utf-8", "replace"), "")
