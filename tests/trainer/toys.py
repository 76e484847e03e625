"""Environments small enough to predict by hand, in a module that worker processes can import."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import ActionSpace


class Counter:
    """Shows (task, goal, steps); solved at the step equal to its goal, and at no other."""

    note = ""
    terminated = truncated = False

    def __init__(self, task: int, fault: str) -> None:
        self._task = task
        self._fault = fault
        if fault == "note":
            self.note = f"task {task}\nsqueaks"
        self._goal = 0
        self._steps = 0

    def reset(self, goal: int) -> npt.NDArray[np.float64]:
        self._goal, self._steps = goal, 0
        return self._show()

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        self._steps += 1
        if self._task == 1 and self._steps == 3:
            if self._fault == "raise":
                raise ValueError("the drawer fell off")
            if self._fault == "lines":
                raise ValueError("the drawer\nfell off")
            if self._fault == "quit":
                sys.exit(0)
            if self._fault == "nan":
                return self._show(), float("nan"), False
            if self._fault == "exit":
                os._exit(7)
            if self._fault in ("slow", "hang"):
                time.sleep(1 if self._fault == "slow" else 600)
        return self._show(), float(action.sum()) + self._steps, self._steps == self._goal

    def state(self) -> dict[str, Any]:
        if self._fault == "mute" and self._task == 1:
            time.sleep(600)
        return {"steps": self._steps}

    def restore(self, goal: int, state: Mapping[str, Any]) -> None:
        if self._fault == "forget" and self._task == 1:
            raise KeyError("where was I")
        self._goal, self._steps = goal, state["steps"]

    def _show(self) -> npt.NDArray[np.float64]:
        return np.array([self._task, self._goal, self._steps], np.float64)


@dataclass(frozen=True)
class CounterFactory:
    """Makes counters; with a fault, task 1 shows it: in the third step of an episode, or about its state."""

    tasks: tuple[str, ...] = ("red", "green", "blue")
    fault: str = ""
    kind: type[Counter] = Counter

    observation_dim: ClassVar[int] = 3
    action_dim: ClassVar[int] = 2
    action_space: ClassVar[ActionSpace] = ActionSpace("box", (-1.0,) * 2, (1.0,) * 2)
    horizon: ClassVar[int] = 500
    episode_steps: ClassVar[int] = 20
    reports_success: ClassVar[bool] = True
    solved_ends: ClassVar[bool] = True

    def cost(self, task: int) -> float:
        return 1.0

    def model(self, task: int) -> int:
        return task

    def for_evaluation(self) -> CounterFactory:
        return self

    def __call__(self, task: int) -> Counter:
        return self.kind(task, self.fault)


@dataclass(frozen=True)
class GatedFactory(CounterFactory):
    """Makes counters that do not step while there is a file."""

    gate: Path = Path("absent")

    def __call__(self, task: int) -> Counter:
        return GatedCounter(task, self.gate)


class GatedCounter(Counter):
    def __init__(self, task: int, gate: Path) -> None:
        super().__init__(task, "")
        self._gate = gate

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        while self._gate.exists():
            time.sleep(0.01)
        return super().step(action)


class Wish:
    """Pays the more the nearer an action is to what its task wants; shows nothing of it."""

    note = ""
    terminated = truncated = False

    def __init__(self, wanted: float) -> None:
        self._wanted = wanted

    def reset(self, goal: int) -> npt.NDArray[np.float64]:
        return np.zeros(1)

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        return np.zeros(1), -abs(float(action[0]) - self._wanted), False

    def state(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True)
class WishFactory(CounterFactory):
    """Makes wishes: one task wants -0.5, the other 0.75."""

    tasks: tuple[str, ...] = ("reach-v3", "drawer-close-v3")
    observation_dim: ClassVar[int] = 1
    action_dim: ClassVar[int] = 1
    action_space: ClassVar[ActionSpace] = ActionSpace("box", (-1.0,), (1.0,))

    def __call__(self, task: int) -> Any:
        return Wish((-0.5, 0.75)[task])
