"""Learners with a full replay, for tests of what several learn together."""

import numpy as np
import torch

from tests.trainer.runs import settings_of_counters
from tests.trainer.toys import CounterFactory
from trainer.loops.learner import Learner

CPU = torch.device("cpu")


def make(folder, seed: int, device: torch.device = CPU, *, say=print, fallback=None) -> Learner:
    """A learner with a full replay."""
    torch.manual_seed(seed)
    settings = settings_of_counters(folder, "--num-envs", "3")
    learner = Learner(settings, CounterFactory(), device, say, fallback)
    fill(learner)
    return learner


def fill(learner: Learner) -> None:
    """Adds two episodes of each of three environments to a replay, always the same."""
    generator = torch.Generator().manual_seed(torch.initial_seed())
    for step in range(40):
        numbers = [torch.randn(3, width, generator=generator).numpy() for width in (3, 2, 3)]
        remaining = torch.full((3,), 20 - step % 20).numpy()
        learner.replay.add(*numbers[:2], numbers[2][:, 0], numbers[2], torch.arange(3).numpy(), remaining)


def live(rollout, rng, *, box: bool, spoilt: float = 0.0, tasks: int = 0, episode: int = 0) -> None:
    """Fills a rollout with random numbers.

    Args:
        rollout: of a learner.
        rng: a generator of NumPy.
        box: whether actions are numbers, or else choices of two.
        spoilt: is added to the rewards.
        tasks: whose one-hot ids are behind the observation.
        episode: steps of each, of which none terminates where there are tasks; 0 for any length.
    """
    _, envs, width = rollout.observation.shape
    for step in range(rollout.steps):
        seen, following = rng.standard_normal((2, envs, width), np.float32)
        if tasks:
            ids = np.eye(tasks, dtype=np.float32)[np.arange(envs) % tasks]
            seen[:, -tasks:] = following[:, -tasks:] = ids
        numbers = rng.standard_normal((envs, rollout.action.shape[-1]), np.float32)
        action = numbers if box else (numbers > 0).astype(np.float32)
        reward = rng.standard_normal(envs, np.float32) + np.float32(spoilt)
        terminated, truncated = rng.random((2, envs)) < 0.1
        if episode:
            terminated, truncated = terminated & (tasks == 0), np.full(envs, (step + 1) % episode == 0)
        rollout.add(seen, action, reward, following, terminated, truncated)


class OneByOne:
    """Learners that make their updates one after the other, each as if it were alone."""

    def __init__(self, learners, streams) -> None:
        self._learners, self._streams = learners, streams

    def update(self, who) -> None:
        for number in who:
            with self._streams[number]:
                self._learners[number].update()

    def leave(self, number) -> None:
        """Nothing: they have nothing to do with each other."""
