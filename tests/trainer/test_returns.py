"""The normaliser of rewards, against returns worked out by hand."""

import copy

import numpy as np
import pytest
import torch

from trainer.algorithms.returns import ReturnScale, greatest_return


def test_returns_by_hand():
    # mean 2, behind the cut 2 / (1 - 0.5) = 4: returns 3 + 0.5 * 4 = 5 and 1 + 0.5 * 5 = 3.5
    assert greatest_return([1.0, 3.0], 0.5) == 5.0
    assert greatest_return([-1.0, -3.0], 0.5) == 5.0
    # mean 1, behind 2: 0 + 0.5 * 2 = 1, then 2 + 0.5 * 1 = 2.5; the 2 behind the cut is no step's
    assert greatest_return([2.0, 0.0], 0.5) == 2.5
    # and a constant reward goes on as it was
    assert greatest_return([3.0] * 7, 0.99) == pytest.approx(300.0)


def make() -> ReturnScale:
    """Two tasks, three environments, episodes of two steps; the third environment changes its task."""
    return ReturnScale(2, 3, 2, 0.5, 10.0)


def step(scale: ReturnScale, reward: list[float], task: list[int], remaining: list[int]) -> list[float]:
    scale.add(np.array(reward, np.float32), np.array(task), np.array(remaining))
    return scale.factor.tolist()


def test_each_task_is_divided_by_its_greatest_return():
    scale = make()
    address = scale.factor.data_ptr()
    assert step(scale, [1, 0, 5], [0, 1, 0], [2, 2, 1]) == pytest.approx([8 / 10, 1.0])  # 5 + 0.5 * 10
    assert step(scale, [3, 0, 8], [0, 1, 1], [1, 1, 2]) == pytest.approx(
        [8 / 10, 1.0]
    )  # 5 is less; 0 tells nothing
    assert step(scale, [0, 0, 0], [0, 1, 1], [2, 2, 1]) == pytest.approx([0.8, 8 / 10])  # 8 + 0.5 * 4
    assert step(scale, [-40, 1, 0], [0, 1, 0], [1, 2, 2]) == pytest.approx([8 / 60, 0.8])  # -40 + 0.5 * -40
    assert scale.factor.data_ptr() == address


def test_normalised_returns_stay_within_the_bound():
    rng = np.random.default_rng(0)
    rewards = rng.uniform(0, 10, (40, 200)) * (rng.random((40, 1)) * np.linspace(0, 1, 200))
    scale = ReturnScale(1, 1, 200, 0.99, 10.0)
    for episode in rewards:
        for left, reward in zip(range(200, 0, -1), episode, strict=True):
            step(scale, [reward], [0], [left])
    found = [greatest_return((episode * scale.factor.item()).tolist(), 0.99) for episode in rewards]
    assert max(found) == pytest.approx(8.0, rel=1e-5)


def test_what_is_not_finite_is_passed_over():
    scale = make()
    assert step(scale, [float("nan"), float("inf"), 1], [0, 1, 1], [1, 1, 1]) == pytest.approx([1.0, 4.0])


def test_a_restored_one_goes_on_in_the_middle_of_an_episode():
    scale, other = make(), make()
    step(scale, [4, 2, 6], [0, 1, 0], [2, 2, 1])
    other.load_state_dict(copy.deepcopy(scale.state_dict()))
    assert torch.equal(other.factor, scale.factor)
    for each in (scale, other):
        step(each, [9, 2, 6], [0, 1, 1], [1, 1, 1])
    assert torch.equal(other.factor, scale.factor)
    assert other.factor[0] == pytest.approx(8 / 15.5)  # (9 + 0.5 * 13): of both steps


def test_without_its_episodes_it_keeps_the_returns_alone():
    scale, other = make(), make()
    step(scale, [4, 2, 6], [0, 1, 0], [2, 2, 1])
    other.load_state_dict(scale.state_dict())
    other.forget_episodes()
    step(other, [1, 1, 1], [0, 1, 1], [1, 1, 1])
    assert other.factor.tolist() == pytest.approx([8 / 12, 8 / 2])
    wider = ReturnScale(2, 5, 2, 0.5, 10.0)
    wider.load_state_dict(scale.state_dict())
    assert torch.equal(wider.factor, scale.factor)
    assert wider.state_dict()["length"].tolist() == [0] * 5


def test_learners_share_the_greatest_return_of_each_task():
    told = []
    other = np.array([30.0, 0.0])
    scale = ReturnScale(
        2, 3, 2, 0.5, 10.0, over_learners=lambda own: (told.append(own.tolist()), np.maximum(own, other))[1]
    )
    assert step(scale, [1, 0, 5], [0, 1, 0], [2, 2, 2]) == pytest.approx([8 / 30, 1.0])
    assert step(scale, [3, 4, 5], [0, 1, 0], [2, 1, 1]) == pytest.approx([8 / 30, 8 / 6])  # 4 + 0.5 * 4
    assert told == [[0, 0], [30, 6]]
