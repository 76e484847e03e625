"""Any registered Gymnasium environment, `module:EnvId` included, behind the interface of the vector.

A goal is the number of a seed: the environment starts the episode with a seed made of the factory's and of
that number. Episodes end by themselves, and later ones draw from the environment's own random numbers, as
in Gymnasium's vector environments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from trainer.envs import gymnasium_state
from trainer.envs.gymnasium_make import made, number_of, success_of, tried
from trainer.envs.interface import OWN_CHOICE
from trainer.envs.spaces import ActionSpace, Scaling, action_space, drawn, observation_reader, translator

_EVALUATION_SEED = 2**32
"""Evaluations of all runs start their episodes alike, and no run is trained on these."""


class GymnasiumEnv:
    """One environment.

    Args:
        factory: that makes it.
        render_mode: as `gymnasium.make` has it.

    Attributes:
        note: empty.
        terminated: whether the last step ended the episode for good.
        truncated: whether it was the last step allowed.
        env: Gymnasium's own.
    """

    note = ""

    def __init__(self, factory: GymnasiumFactory, render_mode: str | None = None) -> None:
        self.env = made(factory.environment, render_mode)
        self._factory = factory
        self._reports_success = factory.reports_success
        self._read = observation_reader(self.env.observation_space, factory.environment)[1]
        self._act = translator(
            self.env.action_space, factory.action_space, factory.actions, factory.environment
        )
        self._snapshots = gymnasium_state.Snapshots(self.env)
        self.terminated = self.truncated = False

    def reset(self, goal: int) -> npt.NDArray[Any]:
        """Starts an episode with the seed of that number, or with none; returns the observation, flat."""
        self.terminated = self.truncated = False
        seed = None
        if goal != OWN_CHOICE:
            # a sum would give run 1's first environment the episodes of run 0's second
            seed = int(np.random.SeedSequence((self._factory.seed, goal)).generate_state(1)[0])
        return self._read(self.env.reset(seed=seed)[0])

    def step(self, action: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], float, bool]:
        """Takes a row (action_dim,); returns the observation, flat, the reward and success at this step."""
        observation, reward, terminated, truncated, info = self.env.step(self._act(action))
        self.terminated, self.truncated = bool(terminated), bool(truncated)
        success = self._reports_success and bool(success_of(info))
        return self._read(observation), number_of(reward), success

    def state(self) -> dict[str, Any]:
        """Returns the state of the episode, for JSON; or `{"lost": reason}` if it could not be restored."""
        if reason := _fault(self._factory):
            return {"lost": reason}
        return self.take()

    def take(self) -> dict[str, Any]:
        """Returns the state of the episode, whether or not it could be restored."""
        return self._snapshots.take()

    def restore(self, goal: int, state: Mapping[str, Any]) -> None:
        """Continues the episode that `state` found, to the bit."""
        self.reset(goal)
        self._snapshots.put_back(state)

    def close(self) -> None:
        """Frees what the environment holds."""
        self.env.close()


@dataclass(frozen=True)
class GymnasiumFactory:
    """Makes copies of one environment; small enough to be sent to a worker process.

    Making it tries the environment for some steps, so that a fault shows before anything is started.

    Attributes:
        environment: a registered id, or `module:EnvId` for one that the module registers, with arguments as
            `trainer.recipe.environments.split_environment` reads them.
        actions: how a box's action is written, see `trainer.envs.spaces.Scaling`.
        seed: of the environments' random numbers.
        observation_dim: numbers in an observation.
        action_space: what an action is.
        horizon: steps after which Gymnasium truncates an episode; None if it does not.
        reports_success: whether the environment's info reports success (`is_success` or `success`).
        step_seconds: seconds of a step as measured here; it differs each time.
        episode_steps: None; the environment ends its episodes itself.
        solved_ends: no, likewise.

    Raises:
        UsageError: the environment is unknown, cannot be made here, or has spaces of another kind.
    """

    environment: str
    _: KW_ONLY
    actions: Scaling
    seed: int
    observation_dim: int = field(init=False)
    action_space: ActionSpace = field(init=False)
    horizon: int | None = field(init=False)
    reports_success: bool = field(init=False)
    step_seconds: float = field(init=False, compare=False)

    episode_steps: ClassVar[None] = None
    solved_ends: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Looks at the environment."""
        name = self.environment
        env = made(name)
        try:
            width, read = observation_reader(env.observation_space, name)
            described = action_space(env.action_space, name)
            act = translator(env.action_space, described, self.actions, name)
            rng = np.random.default_rng(0)
            speaks, seconds = tried(env, name, lambda: act(drawn(described, rng)), read)
            state = {
                "observation_dim": width,
                "action_space": described,
                "horizon": env.spec.max_episode_steps if env.spec else None,
                "reports_success": speaks,
                "step_seconds": seconds,
            }
        finally:
            env.close()
        for attribute, value in state.items():
            object.__setattr__(self, attribute, value)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The environment is the only task."""
        return (self.environment,)

    @property
    def action_dim(self) -> int:
        """Numbers in an action."""
        return self.action_space.dim

    def cost(self, _task: int) -> float:
        """Relative time of a step: all are alike."""
        return 1.0

    def model(self, _task: int) -> str:
        """Nothing is shared within a worker."""
        return self.environment

    def for_evaluation(self) -> Self:
        """Returns a factory whose episodes start as those of all evaluations, and of no training."""
        return replace(self, seed=_EVALUATION_SEED)

    def __call__(self, _task: int) -> GymnasiumEnv:
        """Builds an environment."""
        return GymnasiumEnv(self)


@cache
def _fault(factory: GymnasiumFactory) -> str:
    """Why episodes of that environment cannot be continued elsewhere; empty if they can."""
    rng = np.random.default_rng(0)
    return gymnasium_state.fault(lambda: factory(0), lambda: drawn(factory.action_space, rng))
