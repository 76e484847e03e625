"""Values as distributions, against numbers worked out by hand."""

import math
from itertools import pairwise

import pytest
import torch

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
