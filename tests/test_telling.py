"""What a run of the tests says of a failure, of a process that crashed, and when somebody ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SUITE = """
import os, signal, time

def test_fails():
    assert 1 + 1 == 3

def test_crashes():
    os.kill(os.getpid(), signal.SIGKILL)

def test_waits():
    time.sleep(60)
"""
REPEAT = ".venv/bin/python -m pytest -n 0 test_suite.py::test_fails\n"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "test_suite.py").write_text(SUITE)
    (tmp_path / "pytest.ini").touch()
    return tmp_path


def started(suite: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "tests.telling", *words],
        cwd=suite,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_a_failure_is_told_at_once_and_again_when_the_run_is_ended(suite: Path) -> None:
    run = started(suite, "-n", "0", "-k", "fails or waits")
    assert run.stdout is not None
    said = ""
    while REPEAT not in said:
        line = run.stdout.readline()
        assert line, said
        said += line
    assert "FAILED test_suite.py::test_fails: assert (1 + 1) == 3" in said
    run.send_signal(signal.SIGTERM)
    rest, _ = run.communicate(timeout=60)
    assert run.returncode == 2
    assert "FAILED test_suite.py::test_fails" in rest
    assert "1 failed" in rest


def test_a_process_that_crashed_ends_the_run_with_the_tests_name(suite: Path) -> None:
    words = ("--max-worker-restart", "0", "--dist", "loadgroup", "-k", "crashes or fails")
    said, _ = started(suite, "-n", "1", *words).communicate(timeout=60)
    assert "crashed while running 'test_suite.py::test_crashes'" in said
    assert REPEAT in said
