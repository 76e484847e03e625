"""Whole runs on a GPU: environments by themselves, runs beside each other, and what a run has written.

    python -m tests.benchmarks.gpu_runs COUNT[,COUNT] SECONDS
    python -m tests.benchmarks.gpu_runs --pack COUNT SECONDS FOLDER [--mps] -- ARGV...

The first steps guide-mt10's environments with random actions; the second starts so many runs, ends them after
so many seconds, and adds up their speed. One line of JSON for each finding.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def progress(metrics: Path) -> dict[str, Any]:
    """Reads a run's speed: the median of the second half of its lines with updates, and where it got to."""
    if not metrics.exists():
        return {"steps": 0}
    text = metrics.read_text()
    lines = [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]
    train = [line for line in lines if line["kind"] == "train"]
    learning = [line for line in train if line.get("updates")]
    half = learning[len(learning) // 2 :]
    evaluation: Mapping[str, Any] = next((line for line in reversed(lines) if line["kind"] == "eval"), {})
    found: dict[str, Any] = {
        "steps": max((line["step"] for line in lines), default=0),
        "wall_seconds": lines[-1]["time"] - lines[0]["time"] if lines else 0.0,
        "events": [line for line in lines if line["kind"] == "event"][-20:],
        "last": train[-1] if train else None,
        "evaluation": evaluation or None,
        "success": evaluation.get("success/mean"),
    }
    for key in ("steps_per_second", "updates_per_second"):
        values = [line[key] for line in half if line.get(key)]
        found[key] = statistics.median(values) if values else None
    return found


def digest(run_dir: Path) -> str | None:
    """Returns the sha256 of the final model that a run has told, if it came so far."""
    metrics = run_dir / "metrics.jsonl"
    told = re.findall(r"sha256 ([0-9a-f]{64})", metrics.read_text()) if metrics.exists() else []
    return told[-1] if told else None


def kill_past(argv: Sequence[str], metrics: Path, step: int, limit: float) -> int:
    """Starts a run and kills it once its metrics have come to a step; returns how far it was."""
    run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + limit
    while run.poll() is None and time.monotonic() < until and progress(metrics)["steps"] < step:
        time.sleep(0.02)
    if run.poll() is None:
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return int(progress(metrics)["steps"])


def environments(count: int, seconds: float) -> dict[str, Any]:
    """Steps a second of environments alone, as a run would have them."""
    from trainer.bench.measure import envs
    from trainer.settings import read_settings

    argv = ["--recipe", "guide-mt10", "--num-envs", str(count), "--run-dir", "unused"]
    settings = read_settings(argv, {})
    found = envs(settings, seconds, time.monotonic() + 100 * seconds)
    return {"num_envs": count, "workers": settings.workers, **found}


def pack(count: int, seconds: float, folder: Path, argv: Sequence[str], environ: Mapping[str, str]) -> None:
    """Starts runs beside each other, ends them, and prints what each and all of them made."""
    own = sorted(os.sched_getaffinity(0))
    share = max(1, len(own) // count)
    runs = []
    for number in range(count):
        run_dir = folder / str(number)
        mine = own[number * share : (number + 1) * share] or own
        runs.append(
            subprocess.Popen(
                [*argv, "--seed", str(number), "--run-dir", str(run_dir)],
                stdout=subprocess.DEVNULL,
                env=dict(environ),
                preexec_fn=lambda mine=mine: os.sched_setaffinity(0, mine),
            )
        )
    until = time.monotonic() + seconds
    while time.monotonic() < until and any(run.poll() is None for run in runs):
        time.sleep(0.1)
    for run in runs:
        run.send_signal(signal.SIGTERM)
    for run in runs:
        run.wait()
    found = [progress(folder / str(number) / "metrics.jsonl") for number in range(count)]
    rates = [one.get("steps_per_second") or 0.0 for one in found]
    codes = [run.returncode for run in runs]
    print(json.dumps({"runs": count, "steps_per_second": sum(rates), "each": rates, "codes": codes}))


def _under_mps(folder: Path) -> dict[str, str]:
    """Starts NVIDIA's daemon for these runs alone; returns the environment of its clients."""
    environ = dict(os.environ)
    for name in ("PIPE", "LOG"):
        place = folder / f"mps-{name.lower()}"
        place.mkdir(mode=0o700)
        environ[f"CUDA_MPS_{name}_DIRECTORY"] = str(place)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environ, check=True)
    return environ


def main(argv: Sequence[str]) -> None:
    """Do what the words say."""
    if argv[0] != "--pack":
        for count in argv[0].split(","):
            print(json.dumps(environments(int(count), float(argv[1]))), flush=True)
        return
    own, program = argv[1 : argv.index("--")], argv[argv.index("--") + 1 :]
    folder = Path(own[2])
    if "--mps" not in own:
        pack(int(own[0]), float(own[1]), folder, program, os.environ)
        return
    environ = _under_mps(folder)
    try:
        pack(int(own[0]), float(own[1]), folder, program, environ)
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", env=environ, check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
