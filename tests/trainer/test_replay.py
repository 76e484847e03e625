import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.replay import Replay


def filled(counts: list[int], capacity: int, batch_size: int) -> Replay:
    """A replay whose observations are (task, serial number), one transition at a time."""
    replay = Replay(len(counts), capacity, batch_size, 2, 1)
    for task, count in enumerate(counts):
        for serial in range(count):
            add(replay, [(task, serial)])
    return replay


def add(replay: Replay, transitions: list[tuple[int, int]]) -> None:
    observation = np.array(transitions, np.float32)
    replay.add(
        observation,
        observation[:, 1:] / 10,
        observation[:, 1] * 2,
        observation + 0.5,
        observation[:, 0].astype(np.int32),
    )


@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(1, 30), min_size=1, max_size=7),
    extra=st.integers(0, 20),
    seed=st.integers(0, 100),
)
def test_batches_are_stratified_and_rows_whole(counts, extra, seed):
    torch.manual_seed(seed)
    batch_size = len(counts) + extra
    replay = filled(counts, capacity=10 * len(counts), batch_size=batch_size)
    for _ in range(5):
        batch = replay.sample()
        assert batch.observation.shape == (batch_size, 2)
        share = torch.bincount(batch.task, minlength=len(counts))
        assert share.max() - share.min() <= 1
        assert torch.equal(batch.observation[:, 0].long(), batch.task)
        serial = batch.observation[:, 1]
        held = torch.tensor(counts)[batch.task]
        assert (serial < held).all()
        assert (serial >= (held - 10).clamp_min(0)).all()  # the oldest are overwritten
        torch.testing.assert_close(batch.action[:, 0], serial / 10)
        assert torch.equal(batch.reward, serial * 2)
        assert torch.equal(batch.next_observation, batch.observation + 0.5)


def test_what_does_not_divide_rotates_over_the_tasks():
    replay = filled([5] * 10, capacity=100, batch_size=512)
    shares = torch.stack([torch.bincount(replay.sample().task) for _ in range(5)])
    assert shares.sum(1).tolist() == [512] * 5
    assert shares.sum(0).tolist() == [256] * 10  # five batches: every task has had its turn once


def test_several_transitions_of_a_task_in_one_call_all_arrive():
    replay = Replay(2, 8, 2, 2, 1)
    add(replay, [(1, 0), (0, 0), (1, 1), (1, 2)])
    assert replay.sizes.tolist() == [1, 3]
    add(replay, [(1, 3), (1, 4), (0, 1)])  # the ring of task 1 holds four
    assert replay.sizes.tolist() == [2, 4]
    held = replay.observations()
    assert sorted(held[held[:, 0] == 1, 1].tolist()) == [1, 2, 3, 4]


def test_every_row_of_a_large_ring_is_reached():
    torch.manual_seed(0)
    replay = Replay(1, 3000, 1000, 1, 1)
    column = np.arange(3000, dtype=np.float32)[:, None]
    replay.add(column, column, column[:, 0], column, np.zeros(3000, np.int32))
    drawn = torch.cat([replay.sample().reward for _ in range(40)]).long()
    counts = torch.bincount(drawn, minlength=3000).double()
    assert counts.min() > 0
    assert abs(counts[:1500].mean() / counts[1500:].mean() - 1) < 0.05


def test_a_replay_is_restored_to_the_draw():
    replay = filled([3, 12, 7], capacity=30, batch_size=8)
    replay.sample()
    other = Replay(3, 30, 8, 2, 1)
    other.load_state_dict(replay.state_dict())
    for _ in range(3):
        torch.manual_seed(1)
        ours = replay.sample()
        torch.manual_seed(1)
        theirs = other.sample()
        for left, right in zip(ours, theirs, strict=True):
            assert torch.equal(left, right)
        add(replay, [(1, 99)])
        add(other, [(1, 99)])


def test_bytes_are_those_of_the_rows():
    assert Replay(10, 1000, 10, 39, 4).nbytes == 1000 * (39 + 4 + 1 + 39) * 4
