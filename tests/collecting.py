"""One process of a test run imports the tests first, and the others find them compiled.

pytest rewrites the asserts of every test file when it imports it and keeps the result beside it. After a
change of many files, as in a new clone, each of the processes would do the same work.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

FIRST = "gw0"
PATIENCE_SECONDS = 300.0
MANY = 20
"""Files that one process after the other may as well rewrite."""


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Wait for the first process of several, or be it."""
    worker = getattr(session.config, "workerinput", None)
    if worker is None:
        return (yield)
    done = Path(session.config.option.basetemp).parent / "collected"  # beside the folder of each process
    if worker["workerid"] == FIRST:
        try:
            return (yield)
        finally:
            done.touch()  # whatever it found: another may have looked earlier, and wait
    if _changed() < MANY:
        return (yield)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not done.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    return (yield)


def _changed() -> int:
    """How many test files are newer than what pytest has kept of them."""
    return sum(
        not any(kept.stat().st_mtime >= file.stat().st_mtime for kept in _kept(file))
        for file in Path(__file__).parent.rglob("test_*.py")
    )


def _kept(file: Path) -> Iterator[Path]:
    return (file.parent / "__pycache__").glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
