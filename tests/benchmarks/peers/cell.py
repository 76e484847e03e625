"""One cell: trains one side on one case with one seed, and prints its finding as a line of JSON.

`start` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.benchmarks.peers.cases import CASES, PACKAGES, TITLES, Case
from tests.benchmarks.peers.meter import Meter
from tests.benchmarks.peers.play import mean_return

EPISODES = 20
TRIAL_SECONDS = 0.3
MODULES = {side: side.replace("-", "_") for side in TITLES}


@dataclass
class Run:
    """What a side is told beside its case.

    Attributes:
        steps: to train.
        seed: of everything random.
        device: where to learn.
        folder: for whatever it writes.
        meter: to be told of the steps.
        notes: what the side found worth knowing about this cell.
    """

    steps: int
    seed: int
    device: torch.device
    folder: Path
    meter: Meter
    notes: dict[str, Any] = field(default_factory=dict)


def threads(case: Case) -> int:
    """Tries whether all of PyTorch's threads are faster than one with networks of this size.

    For PPO and A2C nothing is tried: their networks are too small for more than one.
    """
    if not case.off_policy:
        return 1
    values, most, rates = case.values, torch.get_num_threads(), {}
    sizes = [64, *values.get("critic_hidden", values.get("hidden")), 1]
    layers = [torch.nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise(sizes)]
    network, rows = torch.nn.Sequential(*layers), torch.randn(values["batch_size"], sizes[0])
    for count in {1, most}:
        torch.set_num_threads(count)
        network(rows).sum().backward()
        done, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < TRIAL_SECONDS:
            network(rows).sum().backward()
            done += 1
        rates[count] = done / (time.perf_counter() - begun)
    return max(rates, key=lambda count: rates[count])


def measure(
    side: str, name: str, seed: int, steps: int, device: str, begin: int | None = None
) -> dict[str, Any]:
    """Trains and plays; returns the finding.

    Args:
        side: who.
        name: of the case.
        seed: of everything random.
        steps: to train.
        device: `auto`, `cpu` or `cuda`.
        begin: from where on speed counts, if not the case's.
    """
    case = CASES[name]
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    where = torch.device(device, 0) if device == "cuda" else torch.device(device)
    torch.set_num_threads(threads(case))
    random.seed(seed)
    np.random.seed(seed)  # some peers draw from it
    torch.manual_seed(seed)
    train = importlib.import_module(f"tests.benchmarks.peers.sides.{MODULES[side]}").train
    begun, load = time.perf_counter(), os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        meter = Meter(case.begin if begin is None else begin, where)
        run = Run(steps, seed, where, Path(folder), meter, {"threads": torch.get_num_threads()})
        act = train(case, run)
        found = meter.findings()
        trained = time.perf_counter() - begun
        score = mean_return(case.environment, act, EPISODES) if case.played else None
    versions = {"torch": torch.__version__}
    if side in PACKAGES:
        versions[PACKAGES[side]] = metadata.version(PACKAGES[side])
    return {
        "return": score,
        **{key: float(f"{value:.5g}") if isinstance(value, float) else value for key, value in found.items()},
        "train_seconds": round(trained, 2),
        "load_before": round(load, 2),
        "device": device,
        "versions": versions,
        **run.notes,
    }


def main() -> None:
    """Measures; all that the side prints goes to standard error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", choices=TITLES, required=True)
    parser.add_argument("--case", choices=CASES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    asked = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):
        found = measure(asked.side, asked.case, asked.seed, asked.steps, asked.device)
    print(json.dumps(found), flush=True)
    os._exit(0)  # some peers leave threads and processes that keep an interpreter alive
