"""Values as distributions, against numbers worked out by hand."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from trainer.algorithms.returns import ReturnScale, greatest_return
from trainer.nn.value import CategoricalValue, ScalarValue

NAN, INF = math.nan, math.inf


def test_two_hot_by_hand():
    value = CategoricalValue(5, 2.0)  # values -2 -1 0 1 2
    found = value.distribution(torch.tensor([0.0, 0.25, -1.5, 2.0, 7.0, -2.5]))
    expected = [
        [0, 0, 1, 0, 0],
        [0, 0, 0.75, 0.25, 0],
        [0.5, 0.5, 0, 0, 0],
        [0, 0, 0, 0, 1],
        [0, 0, 0, 0, 1],
        [1, 0, 0, 0, 0],
    ]
    assert found.tolist() == expected


@pytest.mark.parametrize("smoothing", [0.0, 0.75])
def test_a_distribution_has_the_mean_of_its_target(smoothing):
    value = CategoricalValue(101, 10.0, smoothing)
    target = torch.linspace(-9.0, 9.0, 777)
    found = value.distribution(target)
    assert (found >= 0).all()
    torch.testing.assert_close(found.sum(-1), torch.ones(777))
    # means of distributions are read from logits
    torch.testing.assert_close(value.mean(found.clamp_min(1e-30).log()), target, rtol=0, atol=2e-3)


def test_smoothing_by_hand():
    value = CategoricalValue(5, 2.0, 0.5)
    (found,) = value.distribution(torch.tensor([0.25]))

    def below(edge: float) -> float:
        return 0.5 * (1 + math.erf((edge - 0.25) / (0.5 * math.sqrt(2))))

    edges = [below(edge) for edge in (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5)]
    expected = [(b - a) / (edges[5] - edges[0]) for a, b in pairwise(edges)]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_near_the_bound_a_smoothed_mean_lies_a_fraction_of_a_bin_inside():
    value = CategoricalValue(101, 10.0, 0.75)
    mean = value.mean(value.distribution(torch.tensor([10.0, 50.0])).clamp_min(1e-30).log())
    assert mean[0] == mean[1]
    assert 0.0 < 10.0 - mean[0] < 0.1  # bins are 0.2 wide


@pytest.mark.parametrize("smoothing", [0.0, 0.75])
@pytest.mark.parametrize("target", [NAN, INF, -INF])
def test_what_is_not_finite_stays_so(smoothing, target):
    value = CategoricalValue(5, 2.0, smoothing)
    assert value.distribution(torch.tensor([0.0, target]))[1].isnan().all()
    assert value.loss(torch.zeros(2, 1, 5), torch.tensor([target])).isnan()


def test_the_loss_is_least_at_the_target_and_is_summed():
    value = CategoricalValue(5, 2.0)
    target = torch.tensor([0.25, -1.0])
    outputs = torch.randn(2, 2, 5, requires_grad=True)
    probabilities = outputs.detach().softmax(-1)
    by_hand = sum(
        -math.log(float(probabilities[critic, 0, 2])) * 0.75
        - math.log(float(probabilities[critic, 0, 3])) * 0.25
        - math.log(float(probabilities[critic, 1, 1]))
        for critic in range(2)
    )
    loss = value.loss(outputs, target)
    assert float(loss.detach()) == pytest.approx(by_hand, rel=1e-5)
    # the gradient of a cross-entropy: probabilities less the target's
    (gradient,) = torch.autograd.grad(loss, [outputs])
    expected = probabilities - value.distribution(target)
    torch.testing.assert_close(gradient, expected)


def test_halved_precision_of_the_outputs_stays_outside():
    value = CategoricalValue(101, 10.0, 0.75)
    outputs = torch.randn(2, 4, 101).bfloat16()
    assert value.mean(outputs).dtype == value.loss(outputs, torch.randn(4)).dtype == torch.float32


def test_a_scalar_is_itself():
    outputs, target = torch.tensor([[[1.0], [2.0]], [[3.0], [5.0]]]), torch.tensor([1.0, 1.0])
    assert ScalarValue().mean(outputs).tolist() == [[1, 2], [3, 5]]
    assert ScalarValue().loss(outputs, target) == 0 + 1 + 4 + 16


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
