"""What keeps the start of a command short: paramiko without the half of it that nobody here uses."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_invoke() -> Iterator[None]:
    """Import paramiko inside, and it takes half the time.

    Its reader of ssh_config imports `invoke`, and with it asyncio, unittest.mock and a YAML library, for the
    `Match exec` lines that only `ssh -G` reads here (see `resolve`). Paramiko itself does without where
    invoke is not installed, which is what it finds here.
    """
    if "paramiko" in sys.modules or "invoke" in sys.modules:
        yield
        return
    sys.modules["invoke"] = None  # type: ignore[assignment]  # the import system's own sign for "not there"
    try:
        yield
    finally:
        del sys.modules["invoke"]
