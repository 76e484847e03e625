"""The interface of an environment, and of the factory that makes environments, to the vector."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from trainer.envs.spaces import ActionSpace

OWN_CHOICE = -1
"""The goal of an episode that the environment draws from its own random numbers, without a new seed."""


class Env(Protocol):
    """One environment."""

    @property
    def note(self) -> str:
        """A remark for the run's log; empty if there is none."""

    @property
    def terminated(self) -> bool:
        """Whether the last step ended the episode for good: nothing comes after it."""

    @property
    def truncated(self) -> bool:
        """Whether a time limit ended the episode: the state after it still has a value."""

    def reset(self, goal: int) -> npt.NDArray[Any]:
        """Starts an episode with that goal; returns the observation.

        The environment decides what a goal is: an index into a list, or the number of a seed. One that ends
        episodes by itself also takes `OWN_CHOICE`.
        """

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], float, bool]:
        """Returns the observation, the reward and whether the task is solved at this step."""

    def state(self) -> dict[str, Any]:
        """Returns the state of the episode, for JSON: everything but the goal that later steps depend on.

        Call it between a reset and the end of the episode, not within a step. Environments whose episodes
        cannot be continued return `{"lost": reason}`.
        """

    def restore(self, goal: int, state: Mapping[str, Any]) -> None:
        """Continues the episode with that goal where `state` found it, to the bit."""


@runtime_checkable
class SplitEnv(Protocol):
    """An environment whose step may be taken in two parts.

    A process does the first parts of all its environments before their second parts: code that runs many
    times in a row stays in the processor's caches, which physics in between would take over.
    """

    def begin(self, action: npt.NDArray[np.float32]) -> None:
        """Does the first part of a step, the physics."""

    def end(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], float, bool]:
        """Does the rest, with the same action; returns what `Env.step` does."""


class EnvFactory(Protocol):
    """Makes environments; is sent to the workers once."""

    @property
    def tasks(self) -> Sequence[str]:
        """Names of the tasks; a task's id is its index."""

    @property
    def observation_dim(self) -> int:
        """Size of an observation."""

    @property
    def action_dim(self) -> int:
        """Size of an action."""

    @property
    def action_space(self) -> ActionSpace:
        """The action space."""

    @property
    def horizon(self) -> int | None:
        """Steps after which an episode is over at the latest; None if the environment sets no limit."""

    @property
    def episode_steps(self) -> int | None:
        """Planned length of the episodes of training; None if the environments end them themselves."""

    @property
    def reports_success(self) -> bool:
        """Whether the environments report success."""

    @property
    def step_seconds(self) -> float:
        """Approximate seconds of a step; steps faster than waking a process need no workers."""

    @property
    def solved_ends(self) -> bool:
        """Whether an episode of an evaluation is over once it is solved."""

    def for_evaluation(self) -> Self:
        """Returns the factory of the evaluation's environments."""

    def cost(self, task: int, /) -> float:
        """Relative time of a step of that task: workers get shares of about the same sum."""

    def model(self, task: int, /) -> Hashable:
        """What is read from disk for that task; tasks with the same share it within a worker."""

    def __call__(self, task: int, /) -> Env:
        """Builds an environment of the task with that id."""
