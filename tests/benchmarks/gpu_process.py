"""A process of a part of `gpu.sh`: started in a group of its own, ended in time, and read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
GRACE = 15.0
"""Seconds that a run gets between the request to end and its end by force."""


@dataclass(frozen=True)
class Outcome:
    """How a process ended: exit code (None: it had to be killed), output, seconds."""

    code: int | None
    output: str
    seconds: float

    def summary(self) -> dict[str, Any]:
        """What is kept of it in any case."""
        short = {"exit_code": self.code, "seconds": round(self.seconds, 1)}
        return short if self.code == 0 else short | {"output": self.output[-2000:]}


def run(
    argv: list[str], limit: float, stop: signal.Signals = signal.SIGKILL, *, root: Path = ROOT
) -> Outcome:
    """Runs a process in a group of its own, for at most `limit` seconds: then `stop` goes to the group.

    Args:
        argv: the program and its words.
        limit: in seconds.
        stop: what it is ended with.
        root: the checkout whose packages it imports.
    """
    begun = time.monotonic()
    process = subprocess.Popen(
        argv,
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    output, code = "", None
    for patience, then in ((limit, stop), (GRACE, signal.SIGKILL), (GRACE, signal.SIGKILL)):
        try:
            output = process.communicate(timeout=max(patience, 0.1))[0]
            code = process.returncode
            break
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, then)
    return Outcome(code, output, time.monotonic() - begun)


def lines(output: str) -> list[Any]:
    """The lines of an output that are JSON objects."""
    found = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
