"""Batches of several seeds at once are those that each seed's own replay would have given."""

import numpy as np
import pytest
import torch

from tests.trainer.replays import draw_as_on_a_device
from tests.trainer.sacs import same
from tests.trainer.test_sac_group import SEEDS, seeded
from trainer.replay import Replay, ReplayGroup, TransitionReplay


def fill(replay: Replay, seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    for step in range(steps):
        numbers = [rng.standard_normal((6, width), np.float32) for width in (4, 2, 4)]
        remaining = np.full(6, 10 - step % 10)
        replay.add(*numbers[:2], numbers[0][:, 0], numbers[2], np.arange(6) % 3, remaining)


@pytest.mark.parametrize("kind", ["episodes on the host", "episodes on a device", "transitions"])
def test_a_batch_of_several_replays_is_what_each_would_give(kind):
    def make() -> list[Replay | TransitionReplay]:
        replays = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            if kind == "transitions":
                rng = np.random.default_rng(seed)
                replay = TransitionReplay(50, 16, 4, 2)
                rows = [rng.standard_normal((30, width), np.float32) for width in (4, 2, 4)]
                replay.add(*rows[:2], rows[2][:, 0], rows[2], rng.random(30) < 0.5)
            else:
                replay = Replay(3, 6, 120, 16, 10, 4, 2)
                fill(replay, seed, 12)
                if kind == "episodes on a device":
                    draw_as_on_a_device(replay)
            replays.append(replay)
        return replays

    alone, grouped = make(), make()
    streams, others = ([seeded(seed) for seed in range(SEEDS)] for _ in range(2))
    group = ReplayGroup(grouped, others)
    for _ in range(3):
        found = group.sample()
        for seed, stream in enumerate(streams):
            with stream:
                expected = alone[seed].sample()
            assert all(same([tensor[seed] for tensor in found.tensors], list(expected.tensors)))


def test_transitions_on_a_device_are_drawn_for_all_seeds_at_once():
    replays = [TransitionReplay(50, 16, 4, 2, "meta") for _ in range(SEEDS)]
    batch = ReplayGroup(replays, [seeded(seed) for seed in range(SEEDS)]).sample()
    assert [tuple(tensor.shape) for tensor in batch] == [
        *((SEEDS, 16, 4), (SEEDS, 16, 2), (SEEDS, 16), (SEEDS, 16, 4)),
        *((SEEDS, 16), (SEEDS, 16)),
    ]
