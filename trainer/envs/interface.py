"""What the vector asks of an environment and of the factory that makes them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class Env(Protocol):
    """What the vector steps."""

    @property
    def note(self) -> str:
        """What the run should say of this environment; empty where there is nothing to say."""

    def reset(self, goal: int) -> npt.NDArray[np.float64]:
        """Starts an episode with that goal; returns the observation."""

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float64], float, bool]:
        """Returns the observation, the reward and whether the task is solved at this step."""

    def state(self) -> dict[str, Any]:
        """Returns where the episode is, for JSON: all but the goal that the coming steps depend on.

        Only between a reset and the end of its episode, not within a step.
        """

    def restore(self, goal: int, state: Mapping[str, Any]) -> None:
        """Continues the episode with that goal where `state` found it, to the bit."""


class EnvFactory(Protocol):
    """Makes environments; is sent to the workers once."""

    @property
    def tasks(self) -> Sequence[str]:
        """Names of the tasks; an id is a place in it."""

    @property
    def observation_dim(self) -> int:
        """Numbers in an observation."""

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""

    def cost(self, task: int) -> float:
        """Relative time of a step of that task: workers get shares of about the same sum."""

    def model(self, task: int) -> Hashable:
        """What is read from disk for that task; tasks with the same share it within a worker."""

    def __call__(self, task: int) -> Env:
        """Builds an environment of the task with that id."""
