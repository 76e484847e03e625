"""Stable-Baselines3's SAC, TD3 and DQN with the values of a recipe of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.logger import configure
from stable_baselines3.common.noise import NormalActionNoise, VectorizedActionNoise
from stable_baselines3.common.vec_env import VecEnv


def sac(values: Mapping[str, Any], envs: VecEnv, *, seed: int, device: str) -> SAC:
    """Makes the learner: an update after each step of the vector environment."""
    return SAC(
        "MlpPolicy",
        envs,
        learning_rate=values["actor_learning_rate"],
        buffer_size=values["replay_capacity"],
        learning_starts=values["warmup_steps"],
        batch_size=values["batch_size"],
        tau=values["tau"],
        gamma=values["gamma"],
        train_freq=1,
        gradient_steps=1,
        policy_kwargs={"net_arch": {"pi": list(values["actor_hidden"]), "qf": list(values["critic_hidden"])}},
        seed=seed,
        device=device,
    )


def td3(values: Mapping[str, Any], envs: VecEnv, *, seed: int, device: str) -> TD3:
    """Makes the learner; with several environments, an update after each step of all."""
    size = envs.action_space.shape
    noise = NormalActionNoise(np.zeros(size), np.full(size, values["exploration_noise"]))
    return TD3(
        "MlpPolicy",
        envs,
        learning_rate=values["actor_learning_rate"],
        buffer_size=values["replay_capacity"],
        learning_starts=values["warmup_steps"],
        batch_size=values["batch_size"],
        tau=values["tau"],
        gamma=values["gamma"],
        train_freq=1,
        gradient_steps=1,
        action_noise=VectorizedActionNoise(noise, envs.num_envs),
        policy_delay=values["policy_delay"],
        target_policy_noise=values["target_noise"],
        target_noise_clip=values["target_noise_clip"],
        policy_kwargs={"net_arch": {"pi": list(values["actor_hidden"]), "qf": list(values["critic_hidden"])}},
        seed=seed,
        device=device,
    )


def dqn(values: Mapping[str, Any], envs: VecEnv, *, seed: int, device: str, **pace: int) -> DQN:
    """Makes the learner, of one environment.

    Args:
        values: of the recipe.
        envs: the environment.
        seed: of the learner.
        device: where it learns.
        pace: `train_freq`, `gradient_steps` and `target_update_interval`; by default the recipe's.
    """
    each = int(values["env_steps_per_update"])
    usual = {
        "train_freq": each,
        "gradient_steps": 1,
        "target_update_interval": values["target_interval"] * each,
    }
    return DQN(
        "MlpPolicy",
        envs,
        learning_rate=values["learning_rate"],
        buffer_size=values["replay_capacity"],
        learning_starts=values["warmup_steps"],
        batch_size=values["batch_size"],
        tau=values["tau"],
        gamma=values["gamma"],
        **{**usual, **pace},
        exploration_fraction=values["exploration_share"],
        exploration_initial_eps=values["epsilon_start"],
        exploration_final_eps=values["epsilon_end"],
        max_grad_norm=values["max_grad_norm"],
        policy_kwargs={"net_arch": list(values["hidden"])},
        seed=seed,
        device=device,
    )


class Dummy(gymnasium.Env):
    """An environment of the lab guides' sizes, the task's id in the observation."""

    observation_space = gymnasium.spaces.Box(-1, 1, (49,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)


def guide_sac(device: str) -> SAC:
    """Makes a learner of the lab guides' sizes with a replay of random transitions."""
    sizes = {"net_arch": {"pi": [256, 256], "qf": [1024, 1024, 1024]}}
    learner = SAC("MlpPolicy", Dummy(), policy_kwargs=sizes, buffer_size=20_000, device=device)
    learner.set_logger(configure(None, []))
    rng = np.random.default_rng(0)
    for _ in range(learner.replay_buffer.buffer_size):
        now, then = rng.standard_normal((2, 49), np.float32)
        action, reward = rng.uniform(-1, 1, 4).astype(np.float32), rng.standard_normal(1)
        learner.replay_buffer.add(now, then, action, reward, np.zeros(1), [{}])
    return learner
