"""A toy that writes what a training writes, in a second; its numbers are made up."""

import json
import math
import os
import random
import sys
import time
from pathlib import Path

steps = int(os.environ.get("STEPS", "40"))
pause = float(os.environ.get("PAUSE", "0"))
folder = Path(os.environ["CLUSTERKIT_RUN_DIR"])
attempt = int(os.environ["CLUSTERKIT_ATTEMPT"])
noise = random.Random(os.environ["CLUSTERKIT_SEED"])

if "--broken" in sys.argv:
    import metawrld  # type: ignore[import-not-found]  # noqa: F401


def write(name: str, row: dict[str, object], mode: str) -> None:
    """One line of JSON into a file of the run directory."""
    with (folder / name).open(mode) as file:
        file.write(json.dumps(row) + "\n")


for step in range(1, steps + 1):
    share = step / steps
    success = (0.95 + 0.05 * noise.random()) / (1 + math.exp(6 - 12 * share))
    speed = 3900 + noise.gauss(0, 60)
    gained = {"return/reach-v3": 900 * share}
    about = {"step": step * 50_000, "time": time.time(), "attempt": attempt}
    write("metrics.jsonl", {"kind": "train", "steps_per_second": speed, **gained, **about}, "a")
    if step % 4 == 0:
        scores = {"success/mean": success, "success/reach-v3": success, "return/mean": 900 * share}
        write("metrics.jsonl", {"kind": "eval", "episodes": 10, **scores, **about}, "a")
    total = {"schema": 1, "total_steps": steps * 50_000, "phase": "train" if step < steps else "done"}
    write(".beat", {**total, **about, "steps_per_second": speed, "success": success}, "w")
    (folder / ".beat").replace(folder / "heartbeat.json")
    if step % 10 == 0:
        sys.stdout.write(f"step {step * 50_000:,} of {steps * 50_000:,}, success {success:.2f}\n")
        sys.stdout.flush()
    time.sleep(pause)
