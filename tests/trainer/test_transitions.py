"""The replay of episodes of any length, beside a plain list of everything that went in."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.cuda_model import CudaModel
from trainer.errors import CheckpointError
from trainer.replay import TransitionReplay


class Filled:
    """An observation is (serial number, environment); everything else follows from the serial number."""

    def __init__(self, capacity: int, num_envs: int, batch_size: int = 7, device: str = "cpu") -> None:
        self.capacity, self.num_envs, self.batch_size, self.device = capacity, num_envs, batch_size, device
        self.replay = self.make()
        self.serial = 0

    def make(self) -> TransitionReplay:
        return TransitionReplay(self.capacity, self.batch_size, 2, 1, self.device)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            serial = np.arange(self.serial, self.serial + self.num_envs, dtype=np.float32)
            self.serial += self.num_envs
            env = np.arange(self.num_envs, dtype=np.float32)
            shown, following = np.stack([serial, env], 1), np.stack([serial + 0.5, env], 1)
            self.replay.add(shown, -serial[:, None], serial * 2, following, serial % 3 == 0)

    def held(self) -> set[int]:
        return set(range(max(0, self.serial - self.capacity), self.serial))


def check(batch, held: set[int]) -> None:
    """Every transition is whole and among the newest."""
    serial = batch.observation[:, 0]
    assert set(serial.int().tolist()) <= held
    assert torch.equal(batch.next_observation[:, 0], serial + 0.5)
    assert torch.equal(batch.next_observation[:, 1], batch.observation[:, 1])
    assert torch.equal(batch.action[:, 0], -serial)
    assert torch.equal(batch.reward, serial * 2)
    assert torch.equal(batch.goes_on, (serial % 3 != 0).float())
    assert not batch.task.any()


@pytest.mark.slow
@given(st.integers(1, 30), st.integers(1, 9), st.integers(1, 40))
def test_it_holds_the_newest_and_draws_nothing_else(capacity, num_envs, steps):
    filled = Filled(capacity, num_envs)
    filled.step(steps)
    for _ in range(5):
        check(filled.replay.sample(), filled.held())
    held = len(filled.held())
    assert filled.replay.sizes.tolist() == [held]
    shown = filled.replay.observations()[:, 0].int().tolist()
    assert sorted(shown) == sorted(filled.held())


def test_it_draws_all_of_them_alike():
    filled = Filled(50, 5, batch_size=1000)
    filled.step(13)
    drawn = torch.cat([filled.replay.sample().observation[:, 0].clone() for _ in range(100)])
    counts = np.bincount(drawn.int().numpy() - (65 - 50), minlength=50)
    assert counts.size == 50
    assert abs(counts - 2000).max() < 6 * 2000**0.5


@pytest.mark.slow
@given(st.integers(3, 30), st.integers(1, 4), st.lists(st.integers(0, 25), min_size=1, max_size=4))
def test_it_is_saved_in_pieces_and_put_together_again(capacity, num_envs, pauses):
    filled = Filled(capacity, num_envs)
    filled.step()
    pieces, mark = [], None
    for steps in pauses:
        filled.step(steps)
        pieces.append(filled.replay.rows_since(mark))
        mark = filled.replay.position()
    state = json.loads(json.dumps(filled.replay.state_dict()))
    restored = filled.make()
    assert restored.fits(state)
    restored.load_state_dict(state)
    for piece in pieces:
        restored.put(piece)
    for _ in range(3):
        ours, theirs = ([part.clone() for part in one.sample()] for one in (filled.replay, restored))
        assert all(torch.equal(left, right) for left, right in zip(ours, theirs, strict=True))
    assert restored.oldest() == filled.replay.oldest() == [max(0, filled.serial - capacity)]


@pytest.mark.slow
def test_restoring_on_a_gpu_keeps_no_buffer_as_large_as_what_was_restored() -> None:
    with CudaModel() as model:
        filled = Filled(5000, 2, device="cuda:0")
        filled.step(2500)
        state, rows = filled.replay.state_dict(), filled.replay.rows_since(None)
        filled.replay = filled.make()
        filled.replay.load_state_dict(state)
        filled.replay.put(rows)
        filled.step()
        assert filled.replay._sender is not None
        assert filled.replay._sender._there.nbytes < rows.data.nbytes / 100
        held = filled.replay.rows_since(None).data[:, 0]
        assert model.order.races == []
    assert set(held.astype(int).tolist()) == filled.held()


def test_another_environments_replay_is_refused():
    state = Filled(10, 1).replay.state_dict()
    other = TransitionReplay(10, 7, 3, 1)
    assert not other.fits(state)
    with pytest.raises(CheckpointError, match="another shape"):
        other.adopt(state, [])
