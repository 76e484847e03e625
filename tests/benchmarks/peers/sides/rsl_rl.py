"""rsl_rl: its runner of PPO, over the thin vector environment that its documentation describes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from tensordict import TensorDict

from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.cell import Run
from tests.benchmarks.peers.environments import Counted, faster, makers, vector
from tests.benchmarks.peers.play import Act


class Environments(VecEnv):
    """Gymnasium's vector environment as it wants it: tensors, one flag for every end, `time_outs` beside."""

    def __init__(self, envs: Counted, seed: int, device: torch.device, longest: int) -> None:
        self._envs = envs
        self._space = envs.single_action_space
        self.num_envs = envs.num_envs
        self.num_actions = self._space.shape[0]
        self.max_episode_length = longest
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long, device=device)
        self.device = device
        self.cfg: dict[str, Any] = {}
        self._seen = self._show(envs.reset(seed=seed)[0])

    def get_observations(self) -> TensorDict:
        """What is seen now."""
        return self._seen

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict]:
        """Actions are clipped to the bounds, as everywhere in this comparison."""
        sent = np.clip(actions.cpu().numpy(), self._space.low, self._space.high)
        seen, reward, terminated, truncated, _ = self._envs.step(sent)
        self._seen = self._show(seen)
        over, late = torch.as_tensor(terminated | truncated), torch.as_tensor(truncated)
        self.episode_length_buf = torch.where(over.to(self.device), 0, self.episode_length_buf + 1)
        rewards = torch.as_tensor(reward, dtype=torch.float32, device=self.device)
        return self._seen, rewards, over.long().to(self.device), {"time_outs": late.float().to(self.device)}

    def _show(self, seen: np.ndarray) -> TensorDict:
        return TensorDict({"policy": torch.as_tensor(seen, device=self.device)}, batch_size=[self.num_envs])


def settings(case: Case) -> dict[str, Any]:
    """Its configuration with the values of our recipe."""
    values = case.values
    network = {"class_name": "MLPModel", "hidden_dims": list(values["hidden"]), "activation": "tanh"}
    return {
        "num_steps_per_env": case.length,
        "save_interval": 10**9,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": network
        | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "log"}},
        "critic": dict(network),
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": values["epochs"],
            "num_mini_batches": case.length * case.envs // values["batch_size"],
            "clip_param": values["clip_range"],
            "gamma": values["gamma"],
            "lam": values["gae_lambda"],
            "value_loss_coef": values["value_coefficient"],
            "entropy_coef": values["entropy_coefficient"],
            "learning_rate": values["learning_rate"],
            "max_grad_norm": values["max_grad_norm"],
            "use_clipped_value_loss": False,
            "schedule": "fixed",
            "normalize_advantage_per_mini_batch": True,
        },
    }


def train(case: Case, run: Run) -> Act:
    """Trains and returns the final policy."""
    make = makers(case.environment, case.envs)
    kind = faster(make)
    run.notes["vectorisation"] = f"gymnasium, {kind}"
    counted = Counted(vector(make, kind), run.meter)
    envs = Environments(counted, run.seed, run.device, longest=1000)
    runner = OnPolicyRunner(envs, settings(case), log_dir=None, device=str(run.device))
    run.meter.count_optimizers()
    runner.learn(run.steps // (case.length * case.envs))
    run.meter.end(counted.steps)
    counted.close()
    policy = runner.get_inference_policy(device=str(run.device))

    @torch.no_grad()
    def act(seen: np.ndarray) -> np.ndarray:
        rows = TensorDict({"policy": torch.as_tensor(seen, device=run.device)}, batch_size=[len(seen)])
        actions: np.ndarray = policy(rows).cpu().numpy()
        return actions

    return act
