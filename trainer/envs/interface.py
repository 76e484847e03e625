"""What the vector asks of an environment and of the factory that makes them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import ActionSpace

OWN_CHOICE = -1
"""The goal of an episode that the environment draws from its own random numbers, without a new seed."""


class Env(Protocol):
    """What the vector steps."""

    @property
    def note(self) -> str:
        """What the run should say of this environment; empty where there is nothing to say."""

    @property
    def terminated(self) -> bool:
        """Whether the last step ended the episode for good: nothing comes after it."""

    @property
    def truncated(self) -> bool:
        """Whether the last step was the last that is allowed: what would come after it has a value."""

    def reset(self, goal: int) -> npt.NDArray[Any]:
        """Starts an episode with that goal; returns the observation.

        What a goal is belongs to the environment: where it stands in a list, or the number of a seed. One
        that ends episodes by itself also takes `OWN_CHOICE`.
        """

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], float, bool]:
        """Returns the observation, the reward and whether the task is solved at this step."""

    def state(self) -> dict[str, Any]:
        """Returns where the episode is, for JSON: all but the goal that the coming steps depend on.

        Only between a reset and the end of its episode, not within a step. `{"lost": reason}` is the answer
        of an environment whose episodes cannot be continued.
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

    @property
    def action_space(self) -> ActionSpace:
        """What the numbers of an action are."""

    @property
    def horizon(self) -> int | None:
        """Steps after which an episode is over at the latest; None if the environment sets no limit."""

    @property
    def reports_success(self) -> bool:
        """Whether success means anything here."""

    @property
    def step_seconds(self) -> float:
        """About what a step takes, to tell those that are over before a process has been woken."""

    @property
    def solved_ends(self) -> bool:
        """Whether an episode of an evaluation is over once it is solved."""

    def for_evaluation(self) -> Self:
        """Returns what makes the environments of an evaluation."""

    def cost(self, task: int, /) -> float:
        """Relative time of a step of that task: workers get shares of about the same sum."""

    def model(self, task: int, /) -> Hashable:
        """What is read from disk for that task; tasks with the same share it within a worker."""

    def __call__(self, task: int, /) -> Env:
        """Builds an environment of the task with that id."""
