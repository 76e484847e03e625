"""Stable-Baselines3's SAC with the values of a recipe of ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stable_baselines3 import SAC
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
