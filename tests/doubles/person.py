"""A person at a terminal: types commands, reads prompts, and answers them."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests import forked


def type_at_terminal(
    words: Sequence[str],
    answers: Mapping[str, Callable[[], str]],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run a clusterkit command on a terminal of its own.

    Args:
        words: of the command line, after the program's name.
        answers: what to type when a text appears; every time it appears.
        folder: where it runs.
        environment: all of it.
        seconds: until it is killed.

    Returns:
        Its exit status and everything the terminal has shown.
    """
    terminal, its_end = pty.openpty()
    process = forked.at_terminal(words, its_end, env=environment, folder=folder)
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
    return subprocess.CompletedProcess(words, process.wait(), seen.decode("utf-8", "replace"), "")
