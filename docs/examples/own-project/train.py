"""Random search on a hill: stands for a trainer that knows nothing of clusterkit but `log`."""

import argparse
import csv
import json
import random
import signal
import sys
import time
from pathlib import Path

import clusterkit

stopping = []


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pause", type=float, default=0.02, help="seconds a step takes")
    arguments = parser.parse_args()

    signal.signal(signal.SIGUSR1, lambda *_: stopping.append(True))  # the time limit is near
    arguments.out.mkdir(parents=True, exist_ok=True)
    checkpoint = arguments.out / "checkpoint.json"
    state = {"step": 0, "x": 5.0}
    if checkpoint.exists():  # an earlier start of this run got so far
        state = json.loads(checkpoint.read_text())
        print(f"going on from step {state['step']}", flush=True)

    with (arguments.out / "progress.csv").open("a", newline="") as file:
        rows = csv.writer(file)
        while state["step"] < arguments.steps and not stopping:
            dice = random.Random(f"{arguments.seed}/{state['step']}")
            guess = state["x"] + arguments.lr * dice.gauss(0, 1)
            state["x"] = min(state["x"], guess, key=abs)
            state["step"] += 1
            reward = -(state["x"] ** 2)
            time.sleep(arguments.pause)
            if state["step"] % 10 == 0:
                rows.writerow([state["step"], reward])
                print(f"step {state['step']}: reward {reward:.3f}", flush=True)
                clusterkit.log(
                    step=state["step"], total_steps=arguments.steps, reward=reward, x=state["x"]
                )

    beside = checkpoint.with_suffix(".tmp")
    beside.write_text(json.dumps(state))
    beside.replace(checkpoint)  # whole or not at all
    return 0 if state["step"] >= arguments.steps else 85  # 85: go on with me later


if __name__ == "__main__":
    sys.exit(main())
