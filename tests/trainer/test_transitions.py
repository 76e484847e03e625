"""The replay of episodes of any length, beside a plain list of everything that went in."""

import copy
import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.cuda_model import CudaModel
from trainer.errors import CheckpointError
from trainer.replay import NStepReplay, TransitionReplay
from trainer.replay.n_step import NStepSums


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


GAMMA = 0.9


@dataclass
class Step:
    """What a vector step brings: an observation is (environment, step), everything else is drawn."""

    number: int
    rng: np.random.Generator
    num_envs: int

    def __post_init__(self) -> None:
        env = np.arange(self.num_envs)
        self.observation = np.stack([env, np.full_like(env, self.number)], 1).astype(np.float32)
        self.action = self.rng.random((self.num_envs, 1), np.float32)
        self.reward = self.rng.standard_normal(self.num_envs, np.float32)
        self.next_observation = self.observation + np.float32([0.0, 0.5])
        self.terminated = self.rng.random(self.num_envs) < 0.15
        self.truncated = self.rng.random(self.num_envs) < 0.15

    @property
    def given(self):
        ends = self.terminated, self.truncated
        return self.observation, self.action, self.reward, self.next_observation, *ends


def lived(seed: int, num_envs: int, count: int) -> list[Step]:
    rng = np.random.default_rng(seed)
    return [Step(number, rng, num_envs) for number in range(count)]


def expected(steps: list[Step], n: int, env: int) -> list[tuple]:
    """The transitions of an environment that are complete after these steps, in the order of time."""
    found = []
    for first in range(len(steps)):
        total, last = 0.0, first
        for k, step in enumerate(steps[first : first + n]):
            total += GAMMA**k * float(step.reward[env])
            last = first + k
            if step.terminated[env] or step.truncated[env]:
                break
        else:
            if len(steps) - first < n:
                continue
        goes_on = 0.0 if steps[last].terminated[env] else GAMMA ** (last - first)
        start = float(steps[first].action[env, 0])
        found.append((first, start, total, float(steps[last].next_observation[env, 1]), goes_on))
    return found


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 30), st.integers(0, 1000))
def test_each_transition_sums_up_what_followed_it_in_its_episode(n, num_envs, count, seed):
    sums, steps = NStepSums(n, GAMMA, num_envs, 2, 1), lived(seed, num_envs, count)
    rows = [row for step in steps for row in zip(*sums.add(*step.given), strict=True)]
    for env in range(num_envs):
        own = [
            (seen[1], action[0], reward, following[1], goes_on)
            for seen, action, reward, following, goes_on in rows
            if seen[0] == following[0] == env
        ]
        wanted = expected(steps, n, env)
        assert [row[0] for row in own] == [row[0] for row in wanted]
        np.testing.assert_allclose(own, wanted, rtol=1e-6, atol=1e-6)
    assert len(rows) == sum(len(expected(steps, n, env)) for env in range(num_envs))


def test_what_other_environments_held_back_is_dropped():
    steps = lived(0, 3, 4)
    sums = NStepSums(4, GAMMA, 3, 2, 1)
    for step in steps[:3]:
        sums.add(*step.given)
    other = NStepSums(4, GAMMA, 2, 2, 1)
    other.load_state_dict(sums.state_dict())
    assert not other.state_dict()["held"].any()


def filled(replay: TransitionReplay, steps: list[Step]) -> TransitionReplay:
    for step in steps:
        replay.add(*step.given)
    return replay


def make(n: int, num_envs: int = 3, capacity: int = 200) -> NStepReplay:
    return NStepReplay(capacity, 16, 2, 1, steps=n, gamma=GAMMA, num_envs=num_envs)


def test_a_replay_of_one_step_is_one_of_transitions():
    steps = lived(0, 3, 20)
    ours, plain = filled(make(1), steps), filled(TransitionReplay(200, 16, 2, 1), steps)
    assert np.array_equal(ours.rows_since(None).data, plain.rows_since(None).data)


def test_a_replay_holds_what_is_complete():
    steps = lived(1, 3, 20)
    replay = make(3)
    filled(replay, steps)
    wanted = sorted(row for env in range(3) for row in expected(steps, 3, env))
    assert replay.sizes.tolist() == [len(wanted)]
    data = replay.rows_since(None).data
    found = sorted(data[:, [1, 2, 3, 5, 6]].tolist())
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_nothing_is_written_before_anything_is_complete():
    replay = make(3, num_envs=1)
    step = lived(0, 1, 1)[0]
    step.terminated[:] = step.truncated[:] = False
    replay.add(*step.given)
    assert replay.sizes.tolist() == [0]
    assert replay.position() == [0]


def test_a_restored_replay_goes_on_to_the_bit():
    steps = lived(2, 3, 30)
    replay = filled(make(3), steps[:11])
    state, rows = copy.deepcopy(replay.state_dict()), replay.rows_since(None)
    other = make(3)
    assert other.fits(state)
    other.load_state_dict(state)
    other.put(rows)
    for each in (replay, other):
        filled(each, steps[11:])
    assert np.array_equal(replay.rows_since(None).data, other.rows_since(None).data)
    for ours, theirs in zip(replay.sample().tensors, other.sample().tensors, strict=True):
        assert np.array_equal(ours.numpy(), theirs.numpy())


def test_environments_that_begin_anew_have_nothing_held_back():
    steps = lived(3, 3, 12)
    for step in steps:
        step.terminated[:] = step.truncated[:] = False
    replay = filled(make(4), steps[:6])
    held = int(replay.sizes[0])
    replay.cut()
    filled(replay, steps[6:9])
    assert replay.sizes.tolist() == [held]
    filled(replay, steps[9:10])
    assert replay.rows_since(None).data[held:, 1].tolist() == [6.0] * 3
