"""What the critics of `strong-mt10` do for learning, on the tasks of `local-demo`: success at equal steps.

Both sides train `local-demo` with the same seeds, environments, widths and updates. One is the recipe as it
is; the other has what `strong-mt10` has beside its size: residual critics with 101 values, the mean of both,
rewards divided by each task's greatest return, weight decay, and the temperature that is the recipe's once
rewards are divided. Success is the mean over the four tasks, 10 goals each. It is a check that nothing is
broken and no forecast for MT10. `ratio_strong` is of the mean over all evaluations, which tells more of so
few runs than the last ones do.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks._report import arguments, report

NUM_ENVS = 16
STRONG = {
    "critic_network": "residual",
    "critic_reduction": "mean",
    "value_bins": "101",
    "value_smoothing": "0.75",
    "weight_decay": "1e-4",
    "normalize_rewards": "returns",
    "initial_alpha": "0.001",
}


def successes(changes: dict[str, str], seed: int, steps: int, evaluations: int) -> list[float]:
    """Trains, and returns the mean success at each evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["--recipe", "local-demo", "--num-envs", str(NUM_ENVS), "--total-steps", str(steps)]
        argv += ["--seed", str(seed), "--run-dir", folder, "--wandb", "disabled", "--checkpoint-every", "0"]
        argv += ["--eval-every", str(steps // evaluations)]
        for key, value in changes.items():
            argv += ["--set", f"{key}={value}", "--unlock", key]
        subprocess.run(
            [sys.executable, "-m", "trainer", "train", *argv], check=True, stdout=subprocess.DEVNULL
        )
        lines = map(json.loads, (Path(folder) / "metrics.jsonl").read_text().splitlines())
        return [line["success/mean"] for line in lines if line["kind"] == "eval"]


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    seeds, steps, evaluations = (1, 16_000, 2) if quick else (3, 96_000, 6)
    found: dict[str, list[list[float]]] = {"plain": [], "strong": []}
    for seed in range(seeds):
        for name, changes in (("strong", STRONG), ("plain", {})):
            found[name].append(successes(changes, seed, steps, evaluations))
            print(f"seed {seed}, {name}: {' '.join(f'{each:.2f}' for each in found[name][-1])}", flush=True)
    last = {name: statistics.fmean(run[-1] for run in runs) for name, runs in found.items()}
    area = {name: statistics.fmean(map(statistics.fmean, runs)) for name, runs in found.items()}
    report(
        "strong",
        [
            (f"success at {steps:,} steps", "strong", last["strong"], "local-demo", last["plain"], "of 1"),
            ("mean of the evaluations", "strong", area["strong"], "local-demo", area["plain"], "of 1"),
        ],
        {"ratio_strong": area["strong"] / max(area["plain"], 0.01), "seeds": seeds},
    )


if __name__ == "__main__":
    main()
