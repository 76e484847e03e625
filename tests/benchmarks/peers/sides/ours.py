"""Our trainer: `trainer.loops.training.train` as a run has it, with the last evaluation and checkpoint."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch

from tests.benchmarks._trained import trained
from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.cell import Run
from tests.benchmarks.peers.play import Act
from trainer.envs.spaces import action_space, translator
from trainer.loops import training
from trainer.settings import read_settings


def metered(kind: Any, run: Run) -> Any:
    """Returns the loop with a meter that looks on after each vector step."""

    class Metered(kind):
        def report(self) -> None:
            super().report()
            run.meter.updates = self._progress.updates
            run.meter.at(self._progress.step)
            if self._over():
                run.meter.end(self._progress.step)
                processes = len(self._vector.pids)
                own = self._vector._own is not None
                run.notes["vectorisation"] = f"processes: {processes}" + (" and its own" if own else "")

    return Metered


def train(case: Case, run: Run) -> Act:
    """Trains and returns the final policy."""
    values = case.changes | ({} if case.environment == "MT10" else {"environment": case.environment})
    changes = [word for key, value in values.items() for word in ("--set", f"{key}={value}", "--unlock", key)]
    settings = read_settings(
        [
            *("--recipe", case.recipe, *changes, "--total-steps", str(run.steps)),
            *("--num-envs", str(case.envs), "--seed", str(run.seed), "--run-dir", str(run.folder)),
            *("--device", run.device.type, "--eval-every", "0", "--checkpoint-every", "0"),
            *("--final-episodes", "1", "--wandb", "disabled"),
        ],
        {},
    )
    kinds = {name: getattr(training, name) for name in ("OnPolicyRun", "OffPolicyRun")}
    try:
        for name, kind in kinds.items():
            setattr(training, name, metered(kind, run))
        policy = trained(settings)
    finally:
        for name, kind in kinds.items():
            setattr(training, name, kind)
    run.notes["threads"] = torch.get_num_threads()
    written = in_its_units(case)

    def act(seen: np.ndarray) -> np.ndarray:
        return written(policy.act(seen, np.zeros(len(seen), np.int32), greedy=True))

    return act


def in_its_units(case: Case) -> Act:
    """Returns what turns a policy's actions into the environment's: some are shares of the bounds."""
    if not case.played or case.entry.box != "scaled":
        return lambda actions: actions
    space = gymnasium.make(case.environment).action_space
    row = translator(space, action_space(space, case.environment), "scaled", case.environment)
    return lambda actions: np.stack([row(action) for action in actions])
