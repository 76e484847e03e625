"""Ends jobs of this machine: `python -m clusterkit.backends.local.stop JOB_ID...`.

Each job gets SIGTERM and some seconds to checkpoint; then it is killed. Its supervisor sees to that; what a
killed supervisor has left is ended from here. Unknown or ended ids are not errors, as with scancel.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Sequence

from clusterkit.backends.local.processes import (
    family,
    is_living,
    job_id,
    kill_family,
    living_pid,
    roots,
    send,
)
from clusterkit.backends.local.supervisor import CLEAN_UP_SECONDS, GRACE_SECONDS


def stop(
    identifiers: Sequence[str], *, grace: float = GRACE_SECONDS, patience: float = CLEAN_UP_SECONDS + 5
) -> None:
    """Ends jobs and returns when they are gone.

    Args:
        identifiers: job ids.
        grace: seconds between SIGTERM and SIGKILL for a job without its supervisor.
        patience: seconds after these for a job to clean up, before all of it is killed.
    """
    left: list[str] = []
    for identifier in identifiers:
        if (leader := living_pid(identifier)) is not None:
            send([leader], signal.SIGTERM, signal.SIGCONT)  # one that was stopped obeys when it is continued
        else:
            members = family(identifier)
            left += filter(
                None, map(job_id, members)
            )  # when its parent has ended, not each is known any more
            send(roots(identifier), signal.SIGTERM)
            send(members, signal.SIGCONT)
    living = _living(identifiers, grace)
    for identifier in living:
        if living_pid(identifier) is None:
            send(
                family(identifier) - roots(identifier), signal.SIGKILL
            )  # job.sh goes last, as under a supervisor
    for identifier in _living(living, patience):
        kill_family(identifier)
        if (leader := living_pid(identifier)) is not None:
            send([leader], signal.SIGKILL)
    send(filter(None, map(living_pid, left)), signal.SIGKILL)


def _living(identifiers: Sequence[str], seconds: float) -> list[str]:
    """Returns those of some jobs that still live after a time."""
    end, living = time.monotonic() + seconds, list(identifiers)
    while (living := list(filter(is_living, living))) and time.monotonic() < end:
        time.sleep(0.05)
    return living


if __name__ == "__main__":
    stop(sys.argv[1:])
