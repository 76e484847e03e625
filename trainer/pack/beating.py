"""The heartbeat of a run that has ended, while its process goes on with others."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from trainer.files import atomic_write_json

SECONDS = 15.0
"""Between two beats; a run that is silent for three minutes looks as if it hung."""


@contextlib.contextmanager
def beats_on(path: Path, seconds: float = SECONDS) -> Iterator[Callable[[], object]]:
    """Gives what has the time in a heartbeat kept new from then on, until the context is left.

    Args:
        path: of `heartbeat.json`, which nobody else writes by then.
        seconds: between two beats.
    """
    over = threading.Event()

    def beat() -> None:
        while not over.wait(seconds):
            with contextlib.suppress(OSError, ValueError):  # not there, or a full disk: then it looks silent
                facts = json.loads(path.read_text(encoding="utf-8"))
                atomic_write_json(path, {**facts, "time": time.time()})

    thread = threading.Thread(target=beat, name="heartbeat of the leader", daemon=True)
    try:
        yield thread.start
    finally:
        over.set()
        if thread.ident is not None:
            thread.join()
