"""What a working copy for each run costs: a project of 10,000 files, submitted here for 1 seed and for 20.

The peer is the limit: `cp -R` of the same tree, once for each run, one after another. `submit`: the whole
command with Python's start and the snapshot; nothing is copied for a run before its start, so it has no peer.
`copy`: from the start of the first attempt to that of the last program, over the runs, which start together.
`sync`: `sync-results` of all runs while they have their code; it sends none of it. Space is by du of the run
directories, while all run and after their end. `ratio_copy` is above 1 where ours is faster.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks._report import Row, arguments, report

PROGRAM = """
import os, pathlib, sys, time
pathlib.Path("began").write_text(str(time.time()))
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)
"""
SETTINGS = """
[project]
program = ["python", "train.py", "{go}"]
default_profile = "here"
[profiles.here]
cpus = 1
time = "1h"
"""


def make_project(folder: Path, files: int) -> Path:
    """A project of so many files of 2 kB in folders of 100, whose runs wait for the file `go` beside it."""
    for number in range(files - 2):
        path = folder / f"package{number // 100}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"value = {number:08}\n" * 111)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "clusterkit.toml").write_text(SETTINGS.replace("{go}", str(folder.parent / "go")))
    return folder


def used(folder: Path) -> int:
    """Bytes on the disk."""
    return int(subprocess.check_output(["du", "-s", "-B1", str(folder)], text=True).split()[0])


def types(project: Path, *words: str) -> float:
    """Run a command of clusterkit; returns its seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "clusterkit", *words], cwd=project, check=True, capture_output=True)
    return time.perf_counter() - began


def measure(folder: Path, files: int, seeds: int) -> dict[str, float]:
    """Seconds and bytes of one submission of so many seeds."""
    project = make_project(folder / "project", files)
    runs, peers = project / ".clusterkit/local/runs", folder / "peers"
    peers.mkdir()
    os.sync()  # the disk work of one side must not fall into the other's time
    began = time.perf_counter()
    for number in range(seeds):
        subprocess.run(["cp", "-R", str(project), str(peers / str(number))], check=True)
    found = {"peer_copy_s": (time.perf_counter() - began) / seeds, "peer_bytes": used(peers)}
    shutil.rmtree(peers)
    os.sync()
    group = ["--max-parallel", str(seeds), "--seeds", f"1..{seeds}"]
    found["submit_s"] = types(project, "submit", "--yes", *group)
    deadline = time.monotonic() + 600
    while len(list(runs.glob("*/work/began"))) < seeds:
        if time.monotonic() > deadline:
            raise TimeoutError("the runs do not start")
        time.sleep(0.1)
    starts = [path.stat().st_mtime for path in runs.glob("*/attempts/0/start.json")]
    begins = [float(path.read_text()) for path in runs.glob("*/work/began")]
    found["copy_s"] = (max(begins) - min(starts)) / seeds
    found["snapshot_bytes"] = used(project / ".clusterkit/local/snapshots")
    found["running_bytes"] = used(runs)
    found["sync_s"] = types(project, "sync-results")
    (folder / "go").touch()
    while len(list(runs.glob("*/attempts/0/exit.json"))) < seeds or list(runs.glob("*/work.list*")):
        time.sleep(0.1)
    found["ended_bytes"] = used(runs)
    subprocess.run(["chmod", "-R", "u+rwX", str(folder)], check=True)
    shutil.rmtree(folder)
    return found


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    files = 1_000 if quick else 10_000
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        for seeds in (1, 4 if quick else 20):
            found = measure(Path(folder) / str(seeds), files, seeds)
            what = f"{files} files, {seeds} seed{'s' if seeds > 1 else ''}"
            peer, copies = "cp -R for each run", found["peer_bytes"] / 1e6
            rows += [
                (f"{what}: submit", "snapshot", found["submit_s"], "", 0.0, "s"),
                ("  on disk", "snapshot", found["snapshot_bytes"] / 1e6, "", 0.0, "MB"),
                ("  start of a run", "copy and list", found["copy_s"], peer, found["peer_copy_s"], "s"),
                ("  runs on disk", "while they run", found["running_bytes"] / 1e6, peer, copies, "MB"),
                ("  runs on disk", "after their end", found["ended_bytes"] / 1e6, peer, copies, "MB"),
                ("  sync-results", "while they run", found["sync_s"], "", 0.0, "s"),
            ]
            metrics |= {f"{name}_{seeds}": value for name, value in found.items()}
            metrics[f"ratio_copy_{seeds}"] = found["peer_copy_s"] / found["copy_s"]
    report("working_copy", rows, metrics)


if __name__ == "__main__":
    main()
