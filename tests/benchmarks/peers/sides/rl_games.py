"""rl_games: its PPO agents (named `a2c_...`) and SAC, over a vector environment registered with it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from rl_games.common import env_configurations, vecenv
from rl_games.common.ivecenv import IVecEnv
from rl_games.torch_runner import Runner

from tests.benchmarks.peers.cases import Case
from tests.benchmarks.peers.cell import Run
from tests.benchmarks.peers.environments import Counted, faster, makers, vector
from tests.benchmarks.peers.play import Act


class Environments(IVecEnv):
    """Gymnasium's vector environment as it wants it."""

    def __init__(self, envs: Counted, seed: int) -> None:
        self._envs = envs
        self._seed = seed

    def reset(self):
        return self._envs.reset(seed=self._seed)[0]

    def step(self, actions: Any):
        """One flag for every end, `time_outs` beside."""
        seen, reward, terminated, truncated, _ = self._envs.step(actions)
        ends = (terminated | truncated).astype(np.uint8)
        return seen, reward.astype(np.float32), ends, {"time_outs": truncated}

    def get_env_info(self):
        return {
            "action_space": self._envs.single_action_space,
            "observation_space": self._envs.single_observation_space,
        }


def settings(case: Case, run: Run) -> dict[str, Any]:
    """Its configuration with the values of our recipe."""
    values = case.values
    cuda = run.device.type == "cuda"
    config: dict[str, Any] = {
        "name": "peer",
        "full_experiment_name": "peer",
        "env_name": "peer",
        "device": str(run.device),
        "device_name": str(run.device),
        "train_dir": str(run.folder),
        "num_actors": case.envs,
        "reward_shaper": {"scale_value": 1.0},
        "normalize_input": False,
        "gamma": values["gamma"],
        "save_best_after": 10**9,
        "print_stats": False,
        "torch_compile": cuda,
    }
    params = {"seed": run.seed, "torch_threads": 0, "load_checkpoint": False, "config": config}
    if case.algorithm == "sac":
        config |= {
            "max_epochs": run.steps // case.envs,
            "num_steps_per_episode": 1,
            "num_updates_per_step": 1,
            "policy_frequency": 1,
            "critic_grad_clip": 0,
            "init_alpha": values["initial_alpha"],
            "learnable_temperature": True,
            "actor_lr": values["actor_learning_rate"],
            "critic_lr": values["critic_learning_rate"],
            "alpha_lr": values["alpha_learning_rate"],
            "critic_tau": values["tau"],
            "batch_size": values["batch_size"],
            "num_warmup_frames": values["warmup_steps"],
            "replay_buffer_size": values["replay_capacity"],
        }
        body = {
            "units": list(values["actor_hidden"]),
            "activation": "relu",
            "initializer": {"name": "default"},
        }
        network = {"name": "soft_actor_critic", "separate": True, "space": {"continuous": None}, "mlp": body}
        network["log_std_bounds"] = [values["log_std_min"], values["log_std_max"]]
        names = ("sac", "soft_actor_critic")
    else:
        config |= {
            "max_epochs": run.steps // (case.length * case.envs),
            "horizon_length": case.length,
            "minibatch_size": values["batch_size"],
            "mini_epochs": values["epochs"],
            "learning_rate": values["learning_rate"],
            "lr_schedule": None,
            "kl_threshold": 0.008,
            "tau": values["gae_lambda"],
            "e_clip": values["clip_range"],
            "clip_value": False,
            "critic_coef": 2 * values["value_coefficient"],  # it halves the loss of values
            "entropy_coef": values["entropy_coefficient"],
            "bounds_loss_coef": 0.0,
            "grad_norm": values["max_grad_norm"],
            "truncate_grads": True,
            "normalize_advantage": True,
            "normalize_value": False,
            "value_bootstrap": True,
        }
        body = {"units": list(values["hidden"]), "activation": "tanh"}
        body["initializer"] = {"name": "orthogonal_initializer", "gain": 2**0.5}
        plain = {"name": "default"}
        box = {
            "mu_activation": "None",
            "sigma_activation": "None",
            "mu_init": plain,
            "sigma_init": {"name": "const_initializer", "val": 0},
            "fixed_sigma": True,
        }
        discrete = case.environment == "CartPole-v1"
        space: dict[str, Any] = {"discrete": None} if discrete else {"continuous": box}
        network = {"name": "actor_critic", "separate": True, "space": space, "mlp": body}
        names = ("a2c_discrete", "discrete_a2c") if discrete else ("a2c_continuous", "continuous_a2c_logstd")
    params |= {"algo": {"name": names[0]}, "model": {"name": names[1]}, "network": network}
    return {"params": params}


def train(case: Case, run: Run) -> Act:
    """Trains and returns the final policy."""
    make = makers(case.environment, case.envs)
    kind = faster(make)
    run.notes |= {"vectorisation": f"gymnasium, {kind}", "torch.compile": run.device.type == "cuda"}
    counted = Counted(vector(make, kind), run.meter)
    vecenv.register("PEER", lambda name, count, **_: Environments(counted, run.seed))
    env_configurations.register("peer", {"vecenv_type": "PEER", "env_creator": lambda **_: None})
    runner = Runner()
    runner.load(settings(case, run))
    agent = runner.algo_factory.create(runner.algo_name, base_name="run", params=runner.params)
    if run.device.type == "cuda":
        agent.model = torch.compile(agent.model)  # as its runner does
    run.meter.count_optimizers()
    agent.train()
    run.meter.end(counted.steps)
    counted.close()
    agent.model.eval()
    space = counted.single_action_space

    @torch.no_grad()
    def act(seen: np.ndarray) -> np.ndarray:
        rows = torch.as_tensor(seen, device=run.device)
        if case.algorithm == "sac":
            return agent.act(rows, space.shape, sample=False).cpu().numpy()
        asked = {"is_train": False, "prev_actions": None, "obs": rows, "rnn_states": None}
        found = agent.model(asked)
        if isinstance(space, gymnasium.spaces.Discrete):
            return found["logits"].argmax(1).cpu().numpy()
        return agent.preprocess_actions(found["mus"])

    return act
