"""One measurement in a process: `python -m trainer.bench.child KIND SECONDS LIMIT FILE OPTION...`.

Writes what it found, or why it found nothing, as JSON into the file. When the
parent has gone, so has the reason to measure, and the process ends with it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from trainer.errors import TrainerError
from trainer.files import atomic_write_json, plain
from trainer.settings import read_settings

_LOOK_SECONDS = 0.5


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
