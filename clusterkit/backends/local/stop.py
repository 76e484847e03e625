"""Ends jobs of this machine: `python -m clusterkit.backends.local.stop JOB_ID...`.

Each job gets SIGTERM and some seconds to checkpoint; then it is killed. Unknown or ended ids are not errors,
as with scancel.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Sequence

from clusterkit.backends.local.processes import kill_family, living_pid
from clusterkit.backends.local.supervisor import GRACE_SECONDS


def stop(identifiers: Sequence[str], *, patience: float = 2 * GRACE_SECONDS + 5) -> None:
    """End jobs and return when they are gone.

    Args:
        identifiers: job ids.
        patience: seconds for a supervisor to end its job before both are killed.
    """
    for identifier in identifiers:
        if (pid := living_pid(identifier)) is not None:
            _signal(pid, signal.SIGTERM)
    end = time.monotonic() + patience
    living = list(identifiers)
    while (living := [each for each in living if living_pid(each) is not None]) and time.monotonic() < end:
        time.sleep(0.05)
    for identifier in living:
        if (pid := living_pid(identifier)) is not None:
            kill_family(pid)
            _signal(pid, signal.SIGKILL)


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, number)


if __name__ == "__main__":
    stop(sys.argv[1:])
