"""`clusterkit status` of many runs, the whole command, against asking by hand with one ssh.

1,000 runs of which 200 are active, run directories and ledger real, over a real sshd on loopback whose squeue
and sacct answer for 1,000 jobs and count their calls. `seconds` is the median of the whole command, Python's
start and the login included; `round_trips`, `squeue_calls` and `sacct_calls` are those of one command that
finds ten runs ended; when none has, sacct is not asked.
`all_seconds`: with `--all`, a thousand lines. `ratio_by_hand`: time of one `ssh` that runs squeue and sacct
and prints the heartbeats of the active runs, for a person to read, over `seconds`.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from clusterkit.backends.jobs import JobState
from tests.benchmarks._report import arguments, report
from tests.doubles.slurm_site import Member, SlurmSite

RUNS, RUNNING, PENDING = 1000, 160, 50
ENDED = 10
"""Of the running ones; they have ended since the look before."""
BY_HAND = """squeue -h -r -t all -u "$(id -un)"; sacct -n -P -j {ids}; cd {root}/runs && cat {heartbeats}"""


def members() -> list[Member]:
    """790 that have ended, 160 that run, 50 that wait."""
    ended = RUNS - RUNNING - PENDING
    states = [JobState.COMPLETED if number % 10 else JobState.FAILED for number in range(ended)]
    states += [JobState.RUNNING] * RUNNING + [JobState.PENDING] * PENDING
    return [Member(number, state) for number, state in enumerate(states)]


def median_seconds(work: Callable[[], object], repetitions: int) -> float:
    """Wall time of a call; the first one, which warms caches, does not count."""
    times = []
    for _ in range(repetitions + 1):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def measure(folder: Path, repetitions: int) -> dict[str, float]:
    """All metrics."""
    everyone = members()
    active = [member for member in everyone if member.state.active]
    with closing(SlurmSite(folder, cold=True)) as site:
        site.settle(everyone)
        site.remember(everyone)
        site.answers(everyone)
        site.status()
        ended = {member.job_id: replace(member, state=JobState.FAILED) for member in active[:ENDED]}
        site.answers([ended.get(member.job_id, member) for member in everyone])
        before, calls = site.round_trips(), site.calls()
        shown = site.status()
        used, called = site.round_trips() - before, site.calls() - calls
        states = [run["state"] for run in shown["runs"]]
        if (states.count("RUNNING"), states.count("PENDING")) != (RUNNING - ENDED, PENDING):
            raise AssertionError(f"wrong states: {states}")
        hand = BY_HAND.format(
            ids=",".join(member.job_id for member in active),
            root=site.root,
            heartbeats=" ".join(f"{member.run_id}/heartbeat.json" for member in active[:RUNNING]),
        )
        peer = ["ssh", "-F", str(site.server.ssh_config), site.server.alias, hand]
        return {
            "runs": RUNS,
            "active": len(active) - ENDED,
            "round_trips": used,
            "squeue_calls": called["squeue"],
            "sacct_calls": called["sacct"],
            "seconds": median_seconds(lambda: site.types("status"), repetitions),
            "all_seconds": median_seconds(lambda: site.types("status", "--all"), repetitions),
            "by_hand_seconds": median_seconds(
                lambda: subprocess.run(peer, check=True, stdout=subprocess.DEVNULL), repetitions
            ),
        }


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        took = measure(Path(folder), repetitions=5 if quick else 15)
    peer, hand = "squeue, sacct, cat by ssh", took["by_hand_seconds"]
    report(
        "status",
        [
            (f"{RUNS} runs, {RUNNING - ENDED + PENDING} active", "status", took["seconds"], peer, hand, "s"),
            (f"{RUNS} lines", "status --all", took["all_seconds"], peer, hand, "s"),
        ],
        {**took, "ratio_by_hand": hand / took["seconds"]},
    )


if __name__ == "__main__":
    main()
