"""Asks every question there is, each on a terminal of its own, and types one key; see tests/test_asking.py.

The key is the only argument, in hexadecimal. Prints as JSON, for each question, the exit code and what the
terminal has shown.
"""

from __future__ import annotations

import json
import os
import pty
import select
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from clusterkit.backends.jobs import JobState
from clusterkit.backends.survey import Choice, Option
from clusterkit.cli import cancel, storage_prune, tune
from clusterkit.cli.edge import run
from clusterkit.cli.ui import deploy, init, sweep
from clusterkit.transport.questions import HostKeyQuestion, Prompt, Question, ask_on_terminal

FILE = SimpleNamespace(file=Path("clusterkit.toml"))
ROW = SimpleNamespace(state=SimpleNamespace(state=JobState.RUNNING))
CHOICE = Choice("--root", "Which folder?", (Option("/home/me", "home"), Option("/scratch/me", "fast")))


def _cancel() -> object:
    cancel.status_table = lambda *_, **__: ("the runs",)  # type: ignore[assignment, attr-defined]
    return cancel.agreed(_any([ROW]), together=True, yes=False)


def _any(value: object) -> Any:
    return value


QUESTIONS: Mapping[str, Callable[[], object]] = {
    "password": lambda: ask_on_terminal(Question("me@uni", "", "", (Prompt("Password: ", echo=False),))),
    "code": lambda: ask_on_terminal(Question("me@uni", "", "", (Prompt("Code: ", echo=True),))),
    "host key": lambda: ask_on_terminal(
        HostKeyQuestion("me@uni", "", "New key.", (Prompt("Is it? (yes, no): ", True),))
    ),
    "init, host": lambda: init.choose_host(["uni", "other"]),
    "init, folder": lambda: init.choose(CHOICE),
    "init, write": lambda: init.confirmed(_any(FILE)),
    "storage clean": lambda: storage_prune.may_remove("storage clean", 10, "uni", dry_run=False, yes=False),
    "cancel": _cancel,
    "tune": lambda: tune.agreed(_any(FILE), yes=False),
    "deploy": lambda: deploy.ask_about_large(_any([("big.bin", 10**9)]), 10**6),
    "submit of many": lambda: sweep.confirmed(_any(SimpleNamespace(runs=range(99)))),
}


def answered(question: Callable[[], object], key: bytes) -> tuple[int, str]:
    """The exit code, and what the terminal has shown."""
    pid, terminal = pty.fork()
    if pid == 0:
        try:
            run(question)
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(int(end.code or 0))
    seen, quiet, deadline = b"", 0.1, time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], quiet)[0]:
            if seen.endswith(b": "):  # it waits for an answer
                quiet = 2.0
                os.write(terminal, key)
            continue
        try:
            seen += os.read(terminal, 4096)
        except OSError:  # Linux: the other side has closed
            break
    os.close(terminal)  # ends whatever still waits
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode()


if __name__ == "__main__":
    typed = bytes.fromhex(sys.argv[1])
    print(json.dumps({name: answered(question, typed) for name, question in QUESTIONS.items()}))
