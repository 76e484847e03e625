"""The environments of the peers, which all get the same: Gymnasium's own vector environments."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from tests.benchmarks.peers.meter import Meter
from trainer import recipe as recipes

TRIAL_SECONDS = 0.4
Make = Callable[[], gymnasium.Env]


class MetaWorld(gymnasium.Wrapper):
    """The official environment of one of MT10's tasks: one-hot id appended, goals from the usual 50."""

    def __init__(self, index: int, steps: int) -> None:
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS

        from trainer.envs.official import goal_vectors, official_task

        tasks = recipes.task_names(["MT10"])
        super().__init__(ALL_V3_ENVIRONMENTS[tasks[index]]())
        self._goals = [official_task(tasks[index], goal) for goal in goal_vectors(tasks[index], 50, 42)]
        self._id = np.eye(len(tasks), dtype=np.float32)[index]
        self._rng = np.random.default_rng(index)
        self._steps = self._left = steps
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (39 + len(tasks),), np.float32)

    def reset(self, **_):
        self.env.set_task(self._goals[self._rng.integers(50)])
        observation, info = self.env.reset()
        self._left = self._steps
        return self._show(observation), info

    def step(self, action):
        observation, reward, _, _, _ = self.env.step(action)
        self._left -= 1
        return self._show(observation), float(reward), False, self._left == 0, {}

    def _show(self, observation):
        return np.concatenate([observation, self._id]).astype(np.float32)


def makers(environment: str, count: int, episode_steps: int = 500) -> list[Make]:
    """Returns what makes each environment; all of them show float32."""
    if environment == "MT10":
        return [partial(MetaWorld, index % 10, episode_steps) for index in range(count)]
    return [partial(_gymnasium, environment) for _ in range(count)]


def _gymnasium(environment: str) -> gymnasium.Env:
    env = gymnasium.make(environment)
    space = env.observation_space
    shown = gymnasium.spaces.Box(-np.inf, np.inf, space.shape, np.float32)
    return gymnasium.wrappers.TransformObservation(env, lambda seen: seen.astype(np.float32), shown)


def faster(make: list[Make]) -> str:
    """Tries which of Gymnasium's two vector environments steps sooner here: `sync` or `async` (processes).

    Meta-World's take too long to be made only for that, and in processes are not faster on few processors.
    """
    processors = len(os.sched_getaffinity(0))
    if len(make) == 1 or processors == 1:
        return "sync"
    if isinstance(make[0], partial) and make[0].func is MetaWorld:
        return "async" if processors > 2 else "sync"
    rates = {}
    for kind in ("sync", "async"):
        envs = vector(make, kind)
        envs.reset(seed=0)
        envs.step(envs.action_space.sample())
        steps, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < TRIAL_SECONDS:
            envs.step(envs.action_space.sample())
            steps += 1
        rates[kind] = steps / (time.perf_counter() - begun)
        envs.close()
    return max(rates, key=lambda kind: rates[kind])


def vector(make: list[Make], kind: str) -> gymnasium.vector.VectorEnv:
    """Returns the vector environment; it resets within the step that ends an episode, as the peers expect."""
    way = SyncVectorEnv if kind == "sync" else AsyncVectorEnv
    return way(make, autoreset_mode=AutoresetMode.SAME_STEP)


class Counted(gymnasium.vector.VectorWrapper):
    """Tells the meter before each step how many there were."""

    def __init__(self, envs: gymnasium.vector.VectorEnv, meter: Meter) -> None:
        super().__init__(envs)
        self._meter = meter
        self.steps = 0

    def step(self, actions: Any):
        self._meter.at(self.steps)
        self.steps += self.num_envs
        return self.env.step(actions)
