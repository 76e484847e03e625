"""Commands that are ended at steps of theirs; which steps there are is in tests/doubles/kill_point.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]


def ended_at(
    points: str, *words: str, folder: Path, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Returns what a command said, and its exit code, that gets a signal at these points."""
    return subprocess.run(
        [sys.executable, "-m", "tests.doubles.kill_point", points, *words],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def kills(points: str, *words: str, folder: Path, environment: Mapping[str, str] = os.environ) -> int:
    """Types a command again and again, with SIGKILL at one step after the other, until one comes to its end.

    Returns how many were killed.
    """
    ended = ended_at(points, *words, folder=folder, environment=environment)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stdout.split()[-1])
