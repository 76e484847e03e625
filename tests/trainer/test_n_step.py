"""Transitions of several steps, beside sums made one by one."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.replay import NStepReplay, TransitionReplay
from trainer.replay.n_step import NStepSums

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
