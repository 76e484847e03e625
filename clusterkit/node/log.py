"""`log`, by which the program of a run tells how far it is: all of clusterkit where that is not installed.

Every run directory has a copy, `lib/clusterkit.py`, on the program's PYTHONPATH. It uses only the standard
library of Python 3.8.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

NAME = "clusterkit"
BEAT_SECONDS = 1.0
"""Least time between two heartbeats; the last one is written when the program ends."""
_RESERVED = ("kind", "time", "attempt")
"""Names in a line that are not the program's."""


class _Said:
    """What this process has told so far."""

    step = 0
    total: int | None = None
    beaten = 0.0
    """When the last heartbeat was written, by the monotonic clock."""
    pending: dict[str, Any] | None = None
    """The newest heartbeat, if it was not written."""
    failed = False


def log(step: float | None = None, total_steps: float | None = None, **numbers: Any) -> None:
    """Logs numbers at a step, and tells how far the run is; outside a run it does nothing.

    A line is appended to metrics.jsonl in the run directory, and heartbeat.json replaced, at most once a
    second. A full disk does not stop the program: it is told once, on standard error.

    Args:
        step: how far the program is; None counts the calls, on from where an earlier attempt ended.
        total_steps: the step at which it will be done; None is as before, or as the run was given.
        numbers: by name; anything that `float` takes, such as a tensor with one element.

    Raises:
        TypeError: a value is no number.
        ValueError: a name is one of clusterkit's own, or a text is no number.
    """
    for name in _RESERVED:
        if name in numbers:
            raise ValueError("%r is a name of clusterkit's own; log the number under another one" % name)
    values = {
        name: value if isinstance(value, (int, float)) else float(value) for name, value in numbers.items()
    }
    run_dir = os.environ.get("CLUSTERKIT_RUN_DIR")
    if not run_dir:
        return
    _Said.step = int(_next_step(run_dir) if step is None else step)
    _Said.total = int(total_steps) if total_steps is not None else _Said.total or _given_total()
    attempt = int(os.environ.get("CLUSTERKIT_ATTEMPT", "0"))
    now = {"step": _Said.step, "time": time.time(), "attempt": attempt}
    try:
        if values:
            with open(os.path.join(run_dir, "metrics.jsonl"), "a") as file:
                file.write(json.dumps({"kind": "train", **now, **values}) + "\n")
        if _Said.pending is None:
            atexit.register(_beat, run_dir)
        _Said.pending = {"schema": 1, "total_steps": _Said.total, **now}
        if time.monotonic() - _Said.beaten >= BEAT_SECONDS:
            _beat(run_dir)
    except OSError as error:
        _warn(error)


def _beat(run_dir: str) -> None:
    """Writes the newest heartbeat, unless it is there."""
    atexit.unregister(_beat)
    beat, _Said.pending = _Said.pending, None
    _Said.beaten = time.monotonic()
    part = os.path.join(run_dir, "heartbeat.%d.tmp" % os.getpid())
    try:
        with open(part, "w") as file:
            json.dump(beat, file)
        os.replace(part, os.path.join(run_dir, "heartbeat.json"))
    except OSError as error:
        _warn(error)


def _warn(error: OSError) -> None:
    if not _Said.failed:
        print("[clusterkit] the run's numbers cannot be written: %s" % error, file=sys.stderr, flush=True)
    _Said.failed = True


def _next_step(run_dir: str) -> int:
    """Returns the next step of a program that counts none, after those of an earlier attempt."""
    if not _Said.step:
        try:
            with open(os.path.join(run_dir, "heartbeat.json")) as file:
                _Said.step = int(json.load(file)["step"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
    return _Said.step + 1


def _given_total() -> int | None:
    given = os.environ.get("CLUSTERKIT_TOTAL_STEPS", "")
    return int(given) if given.isdigit() else None


def _give_way() -> None:
    """Puts the whole package in the place of this file where it is installed, with `log` if it has none."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path) != here]
    spec = PathFinder.find_spec(NAME, others)
    if spec and spec.origin and spec.loader:
        sys.modules[NAME] = module = module_from_spec(spec)
        spec.loader.exec_module(module)
        vars(module).setdefault("log", log)


if __name__ == NAME:
    _give_way()
