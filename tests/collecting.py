"""One process of a test run imports the tests first, and the others find them compiled.

pytest rewrites the asserts of every test file when it imports it and keeps the result beside it. After a
change of many files, as in a new clone, each of the processes would do the same work.
"""

from __future__ import annotations

import gc
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
    """Wait for the first process of several, or be it; and look for garbage only among what comes later.

    Tests, and the packages they import, are a million objects that stay until the end.
    """
    worker = getattr(session.config, "workerinput", None)
    done = Path(session.config.option.basetemp).parent / "collected" if worker else None
    first = worker is not None and worker["workerid"] == FIRST
    if done and not first and _changed() >= MANY:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        if done and first:
            done.touch()  # whatever it found: another may have looked earlier, and wait


def _changed() -> int:
    """How many test files are newer than what pytest has kept of them."""
    return sum(
        not any(kept.stat().st_mtime >= file.stat().st_mtime for kept in _kept(file))
        for file in Path(__file__).parent.rglob("test_*.py")
    )


def _kept(file: Path) -> Iterator[Path]:
    return (file.parent / "__pycache__").glob(f"{file.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
