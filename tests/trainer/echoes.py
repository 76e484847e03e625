"""Environments whose best action is what they show: importing the module registers them."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 10


class Echo(gymnasium.Env):
    """Shows something drawn at each step, and pays for saying it.

    Args:
        kind: `number` in [-1, 1], paid by how near it is; or `choice` of four that begin at 5.
    """

    def __init__(self, kind: str) -> None:
        self._number = kind == "number"
        if self._number:
            self.observation_space = self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        else:
            self.observation_space = self.action_space = spaces.Discrete(4, start=5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        if self._number:
            reward = 1.0 - abs(float(action[0] - self._shown[0]))
        else:
            reward = float(action == self._shown)
        return self._show(), reward, False, False, {}

    def _show(self):
        if self._number:
            self._shown = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        else:
            self._shown = self.np_random.integers(5, 9)
        return self._shown


gymnasium.register("Echo-v0", Echo, max_episode_steps=STEPS, kwargs={"kind": "number"})
gymnasium.register("EchoChoice-v0", Echo, max_episode_steps=STEPS, kwargs={"kind": "choice"})


class Broken(Echo):
    """Pays what is no number from the second episode on."""

    _episodes = 0

    def reset(self, **options):
        self._episodes += 1
        return super().reset(**options)

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward if self._episodes == 1 else float("nan"), *rest


gymnasium.register("Broken-v0", Broken, max_episode_steps=STEPS, kwargs={"kind": "choice"})
