"""Learners of several runs that take their steps together."""

import torch

from tests.trainer.test_off_policy import settings_for
from tests.trainer.toys import CounterFactory
from trainer.loops.course import UPDATE
from trainer.loops.groups import OneByOne
from trainer.loops.guards import fingerprint
from trainer.loops.learner import Learner
from trainer.streams import Stream

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


def test_one_by_one_each_learns_what_it_learns_alone(tmp_path):
    expected = []
    for seed, updates in enumerate((5, 2, 3)):
        learner = make(tmp_path, seed)
        for _ in range(updates):
            learner.do(UPDATE)
        expected.append(fingerprint(learner.shared()))
    assert len(set(expected)) == 3

    streams = [Stream(CPU) for _ in range(3)]
    learners = []
    for seed, stream in enumerate(streams):
        with stream:
            learners.append(make(tmp_path, seed))
    group = OneByOne(learners, streams)
    group.do(UPDATE, (0, 1, 2))
    group.do(UPDATE, (0, 1, 2))
    group.leave(1)
    group.do(UPDATE, (0, 2))
    group.do(UPDATE, (0,))
    group.do(UPDATE, (0,))
    assert [fingerprint(learner.shared()) for learner in learners] == expected
    assert all(learner.losses for learner in learners)
