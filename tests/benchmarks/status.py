"""`clusterkit status` of many runs, the whole command, against asking by hand with one ssh.

1,000 runs of which 200 are active, run directories and ledger real, over a real sshd on loopback whose squeue
and sacct answer for 1,000 jobs and count their calls. `seconds` is the median of the whole command, Python's
start and the login included; `round_trips`, `squeue_calls` and `sacct_calls` are those of one command that
finds ten runs ended; when none has, sacct is not asked.
`all_seconds`: with `--all`, a thousand lines. `ratio_by_hand`: time of one `ssh` that runs squeue and sacct
and prints the heartbeats of the active runs, for a person to read, over `seconds`.
`group_seconds`, `group_round_trips`: of a group of 5,000 runs, 2,000 of them done, 60 running, 40 in the
queue and 2,900 that wait until the queue has room; `group_lines` are the lines it prints at 80 columns, the
widest of which has `group_columns`.
`ended_*`: other commands about a group of 2,000 runs that have ended, of which nothing is new: `_seconds`,
`_logins` and `_trips` of each.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from clusterkit.backends.jobs import JobState
from tests.benchmarks._report import arguments, report
from tests.doubles.slurm_site import Member, SlurmSite

RUNS, RUNNING, PENDING = 1000, 160, 50
GROUP = {
    JobState.COMPLETED: 2000,
    JobState.RUNNING: 60,
    JobState.PENDING: 40,
    JobState.DEFERRED: 2900,
}
OF_ENDED = {
    "why": ("why", "GROUP"),
    "logs": ("logs", "GROUP"),
    "curves": ("curves", "GROUP", "--once"),
    "sync_results": ("sync-results", "GROUP", "--no-wandb"),
    "storage_list": ("storage", "list"),
    "storage_prune": ("storage", "prune", "--ended", "--dry-run"),
    "storage_clean": ("storage", "clean", "GROUP", "--dry-run"),
}
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


def measure_group(folder: Path, repetitions: int) -> dict[str, float]:
    """The metrics of a large group that its jobs submit."""
    states = [state for state, count in GROUP.items() for _ in range(count)]
    everyone = [
        Member(number, state, group="big-20260101-000000-k3f9") for number, state in enumerate(states)
    ]
    with closing(SlurmSite(folder, cold=True)) as site:
        site.settle(everyone)
        site.remember(everyone)
        site.answers([member for member in everyone if member.state is not JobState.DEFERRED])
        before = site.round_trips()
        shown = site.status()
        used = site.round_trips() - before
        found = Counter(run["state"] for run in shown["runs"])
        if any(found[state] != GROUP[state] for state in GROUP if state.active):
            raise AssertionError(f"wrong states: {found}")
        lines = site.types("status", COLUMNS="80").stdout.splitlines()
        return {
            "group_runs": len(everyone),
            "group_round_trips": used,
            "group_seconds": median_seconds(lambda: site.types("status"), repetitions),
            "group_lines": len(lines),
            "group_columns": max(map(len, lines)),
        }


def measure_ended(folder: Path, repetitions: int) -> dict[str, float]:
    """The metrics of the other commands about a large group."""
    group, digest = "big-20260101-000000-k3f9", "a" * 64
    everyone = [
        Member(number, JobState.COMPLETED, group=group) for number in range(GROUP[JobState.COMPLETED])
    ]
    found: dict[str, float] = {}
    with closing(SlurmSite(folder, cold=True)) as site:
        site.knows(everyone)
        for name in ("images", "snapshots/0"):
            (site.root / name).mkdir(parents=True)
        (site.root / "images" / f"sha256-{digest}.sif").touch()
        for member in everyone:
            run_dir = site.root / "runs" / member.run_id
            document = json.loads((run_dir / "run.json").read_text())
            document |= {"image": {"digest": digest, "path": f"/images/sha256-{digest}.sif"}}
            (run_dir / "run.json").write_text(json.dumps(document))
            (run_dir / "attempts/0/log").write_text("step 1000 of 2000000\n" * 400)
            (run_dir / "metrics.jsonl").write_text('{"kind": "train", "step": 1000, "loss": 0.5}\n' * 20)
        shutil.copytree(site.root / "runs", site.project / "results")  # rsync takes minutes for so many files
        for name, words in OF_ENDED.items():
            words = tuple(word.replace("GROUP", group) for word in words)
            site.types(*words)
            logins, trips = site.server.accepted_logins(), site.round_trips()
            found[f"ended_{name}_seconds"] = median_seconds(partial(site.types, *words), repetitions)
            calls = repetitions + 1
            found[f"ended_{name}_logins"] = (site.server.accepted_logins() - logins) / calls
            found[f"ended_{name}_trips"] = (site.round_trips() - trips) / calls
    return found


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        repetitions = 5 if quick else 15
        took = measure(Path(folder, "many"), repetitions) | measure_group(Path(folder, "group"), repetitions)
        took |= measure_ended(Path(folder, "ended"), 2 if quick else 5)
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
