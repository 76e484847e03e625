"""Learners with a full replay, for tests of what several learn together."""

import torch

from tests.trainer.test_off_policy import settings_for
from tests.trainer.toys import CounterFactory
from trainer.loops.learner import Learner

CPU = torch.device("cpu")


def make(folder, seed: int, device: torch.device = CPU) -> Learner:
    """A learner with a full replay."""
    torch.manual_seed(seed)
    learner = Learner(settings_for(folder, "--num-envs", "3"), CounterFactory(), device, print)
    fill(learner)
    return learner


def fill(learner: Learner) -> None:
    """Adds two episodes of each of three environments to a replay."""
    for step in range(40):
        numbers = [torch.randn(3, width).numpy() for width in (3, 2, 3)]
        remaining = torch.full((3,), 20 - step % 20).numpy()
        learner.replay.add(*numbers[:2], numbers[2][:, 0], numbers[2], torch.arange(3).numpy(), remaining)


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
