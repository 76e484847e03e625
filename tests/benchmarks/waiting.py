"""How long PyTorch's threads wait in a loop for one another: ours against two fixed times of libgomp's.

Steps a second of a small SAC (Pendulum, two networks of 256, one update each step), on two threads or more:
where nothing else runs, beside a busy program, and beside another training of its kind. The peers are the
same trainer with libgomp's default, 300000 turns of the loop, and with 1000, the best fixed one for a machine
that is shared. With `--quick` only where nothing else runs. `ratio_alone_default`, ... are ours over theirs.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from tests.benchmarks._report import Row, arguments, report

TURNS = {"ours": None, "default": "300000", "1000 turns": "1000"}
SITUATIONS = {"alone": "alone", "beside a busy program": "busy", "two at once": "two"}
BUSY = [sys.executable, "-c", "while True: pass"]


def training(steps: int, turns: str | None) -> subprocess.Popen[str]:
    """Starts a training that prints its rate."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    environ |= {"GOMP_SPINCOUNT": turns} if turns else {}
    argv = [sys.executable, "-m", "tests.benchmarks.peers.start", "--side", "ours", "--case", "sac-pendulum"]
    return subprocess.Popen(
        [*argv, "--steps", str(steps)],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def rate(process: subprocess.Popen[str]) -> float:
    """Steps a second, once it has ended."""
    output, _ = process.communicate()
    return float(json.loads(output.splitlines()[-1])["steps_per_second"])


@contextmanager
def beside(argv: list[str]) -> Iterator[None]:
    """Runs another program meanwhile."""
    other = subprocess.Popen(argv)
    try:
        yield
    finally:
        other.kill()
        other.wait()


def measured(situation: str, steps: int, turns: str | None) -> float:
    """Steps a second; of two trainings the mean."""
    if situation == "alone":
        return rate(training(steps, turns))
    if situation == "beside a busy program":
        with beside(BUSY):
            return rate(training(steps, turns))
    both = [training(steps, turns) for _ in range(2)]
    return statistics.mean([rate(process) for process in both])


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    rounds, steps = (1, 600) if quick else (3, 900)
    rows: list[Row] = []
    metrics: dict[str, float] = {"load": os.getloadavg()[0]}
    for situation, name in tuple(SITUATIONS.items())[: 1 if quick else None]:
        found = {side: [] for side in TURNS}
        for _ in range(rounds):
            for side, turns in TURNS.items():
                found[side].append(measured(situation, steps, turns))
        ours = statistics.median(found["ours"])
        metrics[f"steps_per_second_{name}"] = ours
        for side, key in (("default", "default"), ("1000 turns", "1000")):
            theirs = statistics.median(found[side])
            rows.append((situation, "ours", ours, side, theirs, "steps/s"))
            metrics[f"ratio_{name}_{key}"] = ours / theirs
    report("waiting", rows, metrics)


if __name__ == "__main__":
    main()
