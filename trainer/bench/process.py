"""One measurement in a process of its own, which cannot take others along.

`python -m trainer.bench.process KIND SECONDS LIMIT FILE OPTION...` writes what it measured, or why it
measured nothing, as JSON into the file. When the parent has gone, so has the reason to measure, and the
process ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer.errors import TrainerError
from trainer.files import atomic_write_json, plain
from trainer.ranks.place import python
from trainer.settings import read_settings

_LOOK_SECONDS = 0.2
_GRACE_SECONDS = 3.0
"""Beyond its limit, for a measurement to end by itself."""
_OURS = ("CLUSTERKIT_RUN_DIR", "CLUSTERKIT_ATTEMPT", "WANDB_MODE")
"""Of the run that measures, and not of what is measured."""


@dataclass(frozen=True)
class Order:
    """What to measure.

    Attributes:
        kind: a key of `trainer.bench.measure.KINDS`.
        num_envs: environments.
        workers: their processes.
        precision: of matrix products.
    """

    kind: str
    num_envs: int
    workers: int
    precision: str

    def options(self) -> list[str]:
        """Returns the options of `train` that say so; given last, they win."""
        values = {"--num-envs": self.num_envs, "--workers": self.workers, "--precision": self.precision}
        return [str(word) for pair in values.items() for word in pair]


def measure(
    order: Order, options: Sequence[str], seconds: float, limit: float, interrupted: Callable[[], bool]
) -> dict[str, Any]:
    """Carries out a measurement in a fresh process.

    Args:
        order: what.
        options: of `train`, with the recipe.
        seconds: to measure.
        limit: seconds it may take with all that comes before.
        interrupted: asked several times a second; if true the measurement is given up.

    Returns:
        What it found; `error` says in its place why nothing was found.
    """
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        file, errors = Path(folder, "found.json"), Path(folder, "errors")
        words = [order.kind, str(seconds), str(limit), str(file), *options, *order.options()]
        more = ["--wandb", "disabled", "--run-dir", str(Path(folder, "run"))]
        with errors.open("wb") as stream:
            process = subprocess.Popen(
                [*python(), "-m", "trainer.bench.process", *words, *more],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                env={name: value for name, value in os.environ.items() if name not in _OURS},
            )
        code = _wait(process, time.monotonic() + limit + _GRACE_SECONDS, interrupted)
        if file.is_file():
            result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            return result
        return {"error": _reason(code, errors.read_text(encoding="utf-8", errors="replace"))}


def _wait(process: subprocess.Popen[bytes], until: float, interrupted: Callable[[], bool]) -> int | None:
    """Returns the exit code; None when it was ended by us."""
    try:
        while time.monotonic() < until and not interrupted():
            try:
                return process.wait(_LOOK_SECONDS)
            except subprocess.TimeoutExpired:
                continue
        return None
    finally:
        process.kill()
        process.wait()


def _reason(code: int | None, said: str) -> str:
    if code is None:
        return "it had not finished when the time was up"
    if code == -signal.SIGKILL:
        return "it was killed: memory may have run out"
    lines = said.strip().splitlines()
    return lines[-1] if lines else f"it ended with exit code {code} and printed nothing"


def main(argv: Sequence[str]) -> int:
    """Measures; returns the exit code."""
    kind, seconds, limit, file, *options = argv
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    deadline = time.monotonic() + float(limit)
    settings = read_settings(options, os.environ)
    import torch  # after the cheap checks

    from trainer.bench.measure import KINDS, adapted

    try:
        result = KINDS[kind](adapted(settings), float(seconds), deadline)
    except TrainerError as error:
        result = {"error": error.cause}
    except torch.OutOfMemoryError as error:
        result = {"error": f"the device's memory is too small: {str(error).splitlines()[0]}"}
    atomic_write_json(Path(file), plain(result))
    return 0


def _leave_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)  # workers and evaluator see the end of their streams


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
