"""Gymnasium environments for tests: importing the module registers them."""

from __future__ import annotations

from typing import ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Levers(gymnasium.Env):
    """Pull the levers shown: two of them, whose positions have names that begin at 2 and at -1."""

    def __init__(self) -> None:
        self.action_space = spaces.MultiDiscrete([3, 4], start=[2, -1])
        self.observation_space = spaces.Dict(
            {"left": spaces.Discrete(3, start=2), "right": spaces.Discrete(4, start=-1)}
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._show(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        reward = float(action[0] == self._wanted["left"]) + float(action[1] == self._wanted["right"])
        return self._show(), reward, False, False, {"is_success": reward == 2.0}

    def _show(self):
        left, right = self.np_random.integers(3) + 2, self.np_random.integers(4) - 1
        self._wanted = {"left": left, "right": right}
        return self._wanted


class Doors(gymnasium.Env):
    """Shows (steps of the episode, a number drawn at its start); ends for good after 3 or 4 steps."""

    def __init__(self, *, hidden: bool = False, fault: str = "") -> None:
        self.action_space = spaces.Box(np.array([-1.0, 0.0], np.float32), np.array([3.0, np.inf], np.float32))
        self.observation_space = spaces.Box(-np.inf, np.inf, (1, 2))
        self._hidden = hidden
        self._fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self._fault == "reset":
            raise RuntimeError("the hinge is stuck")
        self._steps, self._drawn = 0, float(self.np_random.integers(100))
        self._length = 3 + int(self._drawn) % 2
        if self._hidden:  # nothing from outside can look into a generator function
            self._count, self._steps = iter(range(1, 99)), None
        return self._show(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        steps = next(self._count) if self._hidden else self._steps + 1
        if not self._hidden:
            self._steps = steps
        self._last = steps
        return self._show(), float(action[0]), steps == self._length, False, {}

    def _show(self):
        steps = getattr(self, "_last", 0) if self._hidden else self._steps
        return np.array([[steps, self._drawn]], np.float32)


class Gates(Doors):
    """Doors with one action in -1..3, that draws itself."""

    metadata: ClassVar[dict] = {"render_modes": ["rgb_array"], "render_fps": 40}

    def __init__(self, *, render_mode: str | None = None, hidden: bool = False, fault: str = "") -> None:
        super().__init__(hidden=hidden, fault=fault)
        self.action_space = spaces.Box(-1.0, 3.0, (1,))
        self.render_mode = render_mode
        if hidden:
            self.metadata = {}

    def render(self):
        if self._fault == "render":
            raise RuntimeError("no colours")
        if self._fault == "package":
            raise gymnasium.error.DependencyNotInstalled('no paint, run `pip install "paint[all]"`')
        return np.full((30, 40, 3), 50 * self._steps, np.uint8)


class Words(gymnasium.Env):
    """Of spaces that nothing here can learn."""

    observation_space = spaces.Text(5)
    action_space = spaces.Discrete(2)


class Odd(gymnasium.Env):
    """Has the bounds and returns the values that its arguments name."""

    def __init__(self, low=-1.0, high=1.0, dtype="float32", **returned) -> None:
        kind = np.dtype(dtype)
        self.action_space = spaces.Box(kind.type(low), kind.type(high), (1,), kind.type)
        self.observation_space = spaces.Box(-1.0, 1.0, (3,))
        self._returned = {"reward": 0.0, "terminated": False, "truncated": False, "info": {}} | returned

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        shown = np.zeros(3, np.float32)
        return shown if self._returned.get("old") else (shown, {})

    def step(self, action):
        return np.zeros(3, np.float32), *(
            self._returned[name] for name in ("reward", "terminated", "truncated", "info")
        )


gymnasium.register("Odd-v0", Odd)
gymnasium.register("Levers-v0", Levers, max_episode_steps=8)
gymnasium.register("Doors-v0", Doors)
gymnasium.register("HiddenDoors-v0", Doors, kwargs={"hidden": True})
gymnasium.register("StuckDoors-v0", Doors, kwargs={"fault": "reset"})
gymnasium.register("Words-v0", Words)
gymnasium.register("Gates-v0", Gates)
gymnasium.register("HiddenGates-v0", Gates, kwargs={"hidden": True})
gymnasium.register("BlindGates-v0", Gates, kwargs={"fault": "render"})
gymnasium.register("BareGates-v0", Gates, kwargs={"fault": "package"})
