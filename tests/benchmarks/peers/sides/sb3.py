"""Stable-Baselines3: `learn` with its own vector environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

from tests.benchmarks import _sb3
from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.cell import Run
from tests.benchmarks.peers.environments import faster, makers
from tests.benchmarks.peers.play import Act


class Watch(BaseCallback):
    """Tells the meter when all steps so far have been learnt from."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def _on_rollout_start(self) -> None:
        self._run.meter.at(self.model.num_timesteps)

    def _on_step(self) -> bool:
        return True


def learner(case: Case, envs: Any, run: Run) -> Any:
    """Returns its learner with the values of our recipe."""
    values = case.values
    if case.off_policy:
        return getattr(_sb3, case.algorithm)(values, envs, seed=run.seed, device=run.device.type)
    same: dict[str, Any] = {
        "seed": run.seed,
        "device": run.device.type,
        "gamma": values["gamma"],
        "learning_rate": values["learning_rate"],
        "n_steps": case.length,
        "gae_lambda": values["gae_lambda"],
        "ent_coef": values["entropy_coefficient"],
        "vf_coef": values["value_coefficient"],
        "max_grad_norm": values["max_grad_norm"],
        "policy_kwargs": {"net_arch": list(values["hidden"])},
    }
    if case.algorithm == "a2c":
        return stable_baselines3.A2C("MlpPolicy", envs, **same)
    return stable_baselines3.PPO(
        "MlpPolicy",
        envs,
        batch_size=values["batch_size"],
        n_epochs=values["epochs"],
        clip_range=values["clip_range"],
        **same,
    )


def train(case: Case, run: Run) -> Act:
    """Trains and returns the final policy."""
    make = makers(case.environment, case.envs)
    kind = faster(make)
    envs = SubprocVecEnv(make) if kind == "async" else DummyVecEnv(make)
    run.notes["vectorisation"] = type(envs).__name__
    agent = learner(case, envs, run)
    run.meter.count_optimizers()
    agent.learn(run.steps, callback=Watch(run))
    run.meter.end(agent.num_timesteps)
    envs.close()

    def act(seen: np.ndarray) -> np.ndarray:
        action: np.ndarray = agent.predict(seen, deterministic=True)[0]
        return action

    return act
