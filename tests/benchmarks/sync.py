"""`clusterkit sync-results`, the whole command, against a bare `rsync -e ssh`, over a real sshd on loopback.

100 runs that have ended, each with what a real one leaves; between two commands one of them changes.
`ratio_noop_100`: median time of one `rsync -e ssh` that finds nothing new in the same 100 run directories,
over that of our command, Python's start and the login included, which finds and brings what has changed;
`times_noop_100` is its inverse; `ratio_kept_100`: over a login that `clusterkit login` keeps, as in a day's
work; `ratio_idle_100`: ours finds nothing new either. `logins`: of one command.
`resent_share`: a checkpoint is pulled by a command that is killed (SIGKILL) when half of it has come; bytes
that come down for the next command, over the checkpoint's; compared byte by byte at the end.
"""

from __future__ import annotations

import filecmp
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from clusterkit.backends.jobs import JobState
from tests.benchmarks._report import arguments, report
from tests.doubles.relay import Relay
from tests.doubles.slurm_site import Member, SlurmSite

RUNS = 100
CHUNK = 1 << 20


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def fill(run_dir: Path, checkpoint: int) -> Path:
    """What a run of some hours leaves; returns the largest file of its checkpoint, of so many bytes."""
    files = {
        "job.sh": "#!/bin/sh\n" * 300,
        "launch.py": "pass\n" * 3000,
        "attempts/0/log": "step 1000 of 2000000\n" * 4000,
        "attempts/0/stderr": "warning\n" * 50,
        "metrics.jsonl": '{"kind": "train", "step": 1000, "loss/critic": 0.5}\n' * 4000,
        "wandb/offline-run-20260101_000000-w1/files/config.yaml": "a: 1\n",
        "wandb/offline-run-20260101_000000-w1/files/requirements.txt": "torch\n",
    }
    for name, text in files.items():
        path = run_dir / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (run_dir / "wandb/offline-run-20260101_000000-w1/run-w1.wandb").write_bytes(os.urandom(200_000))
    folder = run_dir / "checkpoints/step-000001000000"
    folder.mkdir(parents=True)
    for name, size in (("state.pt", 2000), ("model.pt", checkpoint)):
        with (folder / name).open("wb") as file:
            for begin in range(0, size, CHUNK):
                file.write(os.urandom(min(CHUNK, size - begin)))
    (folder / "manifest.json").write_text('{"schema": 2, "files": {}}')
    return folder / "model.pt"


def many(folder: Path, repetitions: int) -> dict[str, float]:
    """100 runs of which one or none has changed."""
    members = [Member(number, JobState.COMPLETED) for number in range(RUNS)]
    with closing(SlurmSite(folder, cold=True)) as site:
        site.settle(members)
        site.remember(members)
        for member in members:
            fill(site.root / "runs" / member.run_id, 50_000)
        home, peers = site.project / "results", folder / "peers"
        peer = ["rsync", "-rlpt", "-e", f"ssh -F {site.server.ssh_config}"]
        peer += [f"{site.server.alias}:{site.root}/runs/", f"{peers}/"]

        def ours() -> None:
            site.types("sync-results", "--no-wandb")

        ours()
        subprocess.run(peer, check=True)
        before = site.server.accepted_logins()
        ours()
        logins = site.server.accepted_logins() - before
        times: dict[str, list[float]] = {}

        def clock(what: str, work: Callable[[], object]) -> None:
            times.setdefault(what, []).append(seconds(work))

        def change(number: int, what: str) -> None:
            """Let one run go on, and bring that home."""
            name = f"{members[number % RUNS].run_id}/attempts/0/log"
            with (site.root / "runs" / name).open("a") as log:
                log.write("one more line\n")
            clock(what, ours)
            if not filecmp.cmp(site.root / "runs" / name, home / name, shallow=False):
                raise AssertionError("what has changed did not come")

        for number in range(repetitions):
            clock("rsync", lambda: subprocess.run(peer, check=True))
            clock("idle", ours)
            change(number, "changed")
            site.types("login", "far", "--keep", "2m")
            change(number, "kept")
            site.types("logout", "far")
            subprocess.run(peer, check=True)  # so that the next one finds nothing new
        return {"logins": logins, **{what: statistics.median(values) for what, values in times.items()}}


def interrupted(folder: Path, size: int) -> float:
    """Share of a checkpoint that is sent again after its transfer was killed at half."""
    member = Member(0, JobState.COMPLETED)
    with closing(SlurmSite(folder, cold=True)) as site, closing(Relay(site.server.port)) as relay:
        site.settle([member])
        site.remember([member])
        model = fill(site.root / "runs" / member.run_id, size)
        site.server.ssh_config.write_text(relay.host_block(site.server))
        process = site.command("sync-results", "--no-wandb")
        relay.after_down(size // 2, process.kill)
        process.communicate()
        if process.returncode != -9:
            raise AssertionError(f"it was not killed: {process.returncode}")
        before = relay.down
        site.types("sync-results", "--no-wandb")
        home = site.project / "results" / model.relative_to(site.root / "runs")
        if not filecmp.cmp(model, home, shallow=False):
            raise AssertionError("the two checkpoints differ")
        return (relay.down - before) / size


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    megabytes = 200 if quick else 2000
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        took = many(Path(folder) / "many", repetitions=7 if quick else 21)
        share = interrupted(Path(folder) / "interrupted", megabytes * 1_000_000)
    peer = "rsync -e ssh, nothing new"
    report(
        "sync",
        [
            (f"{RUNS} runs, one changed", "sync-results", took["changed"], peer, took["rsync"], "s"),
            ("  over a kept login", "sync-results", took["kept"], peer, took["rsync"], "s"),
            (f"{RUNS} runs, nothing new", "sync-results", took["idle"], peer, took["rsync"], "s"),
            (f"{megabytes} MB killed at half", "sent again", share, "from the start", 1.0, "x"),
        ],
        {
            "runs": RUNS,
            "logins": took["logins"],
            "seconds": took["changed"],
            "kept_seconds": took["kept"],
            "idle_seconds": took["idle"],
            "rsync_seconds": took["rsync"],
            "ratio_noop_100": took["rsync"] / took["changed"],
            "times_noop_100": took["changed"] / took["rsync"],
            "ratio_kept_100": took["rsync"] / took["kept"],
            "ratio_idle_100": took["rsync"] / took["idle"],
            "resent_share": share,
        },
    )


if __name__ == "__main__":
    main()
