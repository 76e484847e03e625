"""Random transitions to learn from, for when updates are measured alone."""

from __future__ import annotations

import numpy as np

from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Autoreset, Schedule
from trainer.envs.spaces import drawn
from trainer.loops.memory import AnyReplay
from trainer.loops.rollout_learner import RolloutLearner
from trainer.replay import TransitionReplay
from trainer.settings import TrainSettings


class Filled:
    """A rollout that can be learnt from again and again.

    Args:
        learner: whose rollout is full.
    """

    def __init__(self, learner: RolloutLearner) -> None:
        self._learner = learner
        self._calls = self._updates = 0

    @property
    def each(self) -> float:
        """Updates that `learn` made, on average: it breaks off where the policy may not move further."""
        return self._updates / self._calls

    def learn(self) -> None:
        """Learns from it once, for all epochs."""
        rollout = self._learner.rollout
        rollout.filled = rollout.steps
        self._calls += 1
        self._learner.learn(1.0, self._count)

    def _count(self, updates: int) -> None:
        self._updates += updates


def fill_replay(
    replay: AnyReplay,
    settings: TrainSettings,
    factory: EnvFactory,
    schedule: Schedule | Autoreset,
    rng: np.random.Generator,
) -> None:
    """Adds transitions until there are enough of each task for a batch."""
    envs, never = settings.num_envs, np.zeros(settings.num_envs, np.bool_)
    while replay.sizes.min() < settings.recipe.values["batch_size"] // len(settings.tasks):
        now, then = rng.standard_normal((2, envs, factory.observation_dim), np.float32)
        action = drawn(factory.action_space, rng, envs)
        reward = rng.standard_normal(envs, np.float32)
        if isinstance(replay, TransitionReplay):
            replay.add(now, action, reward, then, never)
        else:
            replay.add(now, action, reward, then, schedule.tasks, schedule.remaining)
        schedule.advance()


def fill_rollout(learner: RolloutLearner, factory: EnvFactory, rng: np.random.Generator) -> Filled:
    """Fills a rollout."""
    rollout = learner.rollout
    shape = rollout.observation.shape[1:]
    never = np.zeros(shape[0], np.bool_)
    for _ in range(rollout.steps):
        now, then = rng.standard_normal((2, *shape), np.float32)
        action, reward = drawn(factory.action_space, rng, shape[0]), rng.standard_normal(shape[0], np.float32)
        rollout.add(now, action, reward, then, never, never)
    return Filled(learner)
