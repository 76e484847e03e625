"""Questions to the person at the terminal, on a real terminal."""

from __future__ import annotations

import os
import pty
import sys
import time

SCRIPT = """
from clusterkit.transport.questions import Prompt, Question, ask_on_terminal
asked = Question("me@hpc", "Second factor", "", (Prompt("Code:", False), Prompt("Name: ", True)))
print("GOT", ask_on_terminal(asked))
print("GOT", ask_on_terminal(Question("me@hpc", "", "Approve on your phone", ())))
"""


def converse(script: str, answers: list[tuple[bytes, bytes]]) -> str:
    """Run a script on a terminal of its own; wait for each text, then type each answer."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", script])
    seen, from_here, left, deadline = b"", 0, list(answers), time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            data = os.read(terminal, 4096)
        except OSError:  # Linux: the other side has closed
            break
        if not data:
            break
        seen += data
        if left and left[0][0] in seen[from_here:]:
            from_here = len(seen)
            os.write(terminal, left.pop(0)[1])
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0, seen
    return seen.decode()


def test_hidden_and_shown_answers() -> None:
    seen = converse(SCRIPT, [(b"[me@hpc] Code: ", b"12345\n"), (b"[me@hpc] Name: ", b"alice\n")])
    assert "Second factor" in seen
    assert "GOT ['12345', 'alice']" in seen
    assert seen.count("12345") == 1  # only printed by the script, never echoed
    assert seen.count("alice") == 2
    assert "Approve on your phone" in seen
    assert "GOT []" in seen
