from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Independent, Normal, TanhTransform, TransformedDistribution

from trainer.nn.heads import CategoricalHead, GaussianHead, Head, StateGaussianHead
from trainer.nn.moments import RunningMoments
from trainer.nn.policy import squashed_gaussian

ROWS = 20_000


@pytest.mark.slow
def test_a_gaussian_is_pytorchs() -> None:
    torch.manual_seed(0)
    head = GaussianHead(3, -0.5)
    with torch.no_grad():
        head.log_std.add_(torch.tensor([0.0, 0.2, -0.3]))
    mean, action = torch.randn(2, 7, 3)
    peer = Normal(mean, head.log_std.exp())
    log_density, entropy = head.evaluate(mean, action)
    torch.testing.assert_close(log_density, peer.log_prob(action).sum(-1))
    torch.testing.assert_close(entropy, peer.entropy().sum(-1).expand(7))


def test_a_gaussian_draws_what_it_says() -> None:
    torch.manual_seed(0)
    head = GaussianHead(2, -1.0)
    mean = torch.tensor([1.0, -2.0])
    drawn = head.sample(mean.expand(ROWS, 2), head.draw_noise(ROWS))
    torch.testing.assert_close(drawn.mean(0), mean, atol=0.02, rtol=0)
    torch.testing.assert_close(drawn.std(0), torch.full((2,), -1.0).exp(), atol=0.02, rtol=0)
    assert torch.equal(head.mode(mean), mean)


@pytest.mark.parametrize("nvec", [[4], [3, 3], [2, 5, 3]])
def test_choices_are_pytorchs(nvec: list[int]) -> None:
    torch.manual_seed(0)
    head = CategoricalHead(nvec)
    logits = torch.randn(9, sum(nvec))
    action = torch.stack([torch.randint(count, (9,)) for count in nvec], -1)
    peers = [Categorical(logits=part) for part in logits.split(nvec, -1)]
    log_probability, entropy = head.evaluate(logits, action.float())
    torch.testing.assert_close(
        log_probability, sum(peer.log_prob(own) for peer, own in zip(peers, action.unbind(-1), strict=True))
    )
    torch.testing.assert_close(entropy, sum(peer.entropy() for peer in peers))


def test_choices_are_drawn_as_often_as_they_should_be() -> None:
    torch.manual_seed(0)
    head = CategoricalHead([3, 2])
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.0])
    drawn = head.sample(logits.expand(ROWS, 5), head.draw_noise(ROWS)).long()
    for choice, part in enumerate(logits.split([3, 2])):
        shares = drawn[:, choice].bincount(minlength=len(part)) / ROWS
        torch.testing.assert_close(shares, part.softmax(0), atol=0.015, rtol=0)
    assert head.mode(logits).tolist() == [1.0, 0.0]


def test_a_gaussian_with_a_deviation_for_each_state_is_pytorchs() -> None:
    torch.manual_seed(0)
    head = StateGaussianHead(3, (-1.0, 0.5))
    outputs, action = torch.randn(9, 6) * 2, torch.randn(9, 3)
    log_std = outputs[:, 3:].clamp(-1.0, 0.5)
    assert (log_std != outputs[:, 3:]).any()
    peer = Normal(outputs[:, :3], log_std.exp())
    log_density, entropy = head.evaluate(outputs, action)
    torch.testing.assert_close(log_density, peer.log_prob(action).sum(-1))
    torch.testing.assert_close(entropy, peer.entropy().sum(-1))
    noise = head.draw_noise(9)
    torch.testing.assert_close(head.sample(outputs, noise), peer.mean + peer.stddev * noise)
    assert torch.equal(head.mode(outputs), outputs[:, :3])


HEADS = [
    GaussianHead(3, -0.4),
    StateGaussianHead(3, (-0.5, 0.7)),
    CategoricalHead([4]),
    CategoricalHead([2, 5]),
]


@pytest.mark.parametrize("head", HEADS)
def test_slopes_are_those_of_autograd(head: Head) -> None:
    torch.manual_seed(0)
    outputs = torch.randn(6, head.outputs, requires_grad=True)
    action = head.sample(outputs.detach(), head.draw_noise(6)).detach()
    by_density, by_entropy = torch.randn(6), torch.tensor(0.3)
    log_density, entropy = head.evaluate(outputs, action)
    total = (by_density * log_density).sum() + by_entropy * entropy.sum()
    expected = torch.autograd.grad(total, [outputs, *head.parameters()])
    by_outputs, by_log_std = head.slope(outputs.detach(), action, by_density, by_entropy)
    torch.testing.assert_close(by_outputs, expected[0])
    if by_log_std is not None:
        torch.testing.assert_close(by_log_std, expected[1])
    assert (by_log_std is None) == (len(expected) == 1)


@pytest.mark.slow
def test_densities_are_those_of_a_tanh_transformed_gaussian():
    torch.manual_seed(0)
    mean, log_std = torch.randn(64, 4, dtype=torch.float64), torch.randn(64, 4, dtype=torch.float64) - 1
    action, log_density = squashed_gaussian(mean, log_std, torch.randn_like(mean))
    gaussian = Independent(Normal(mean, log_std.exp()), 1)
    reference = TransformedDistribution(gaussian, [TanhTransform()])
    torch.testing.assert_close(log_density, reference.log_prob(action))


def test_samples_follow_mean_and_deviation():
    torch.manual_seed(0)
    mean, log_std = torch.full((100_000, 1), 0.3), torch.full((100_000, 1), -1.0)
    action, _ = squashed_gaussian(mean, log_std, torch.randn_like(mean))
    raw = action.atanh()
    assert abs(raw.mean() - 0.3) < 0.01
    assert abs(raw.std() - torch.tensor(-1.0).exp()) < 0.01


def test_extreme_arguments_stay_finite_in_value_and_gradient():
    mean = torch.tensor([[60.0, -60.0]], requires_grad=True)
    log_std = torch.tensor([[2.0, -20.0]], requires_grad=True)
    action, log_density = squashed_gaussian(mean, log_std, torch.randn_like(mean))
    (action.sum() + log_density.sum()).backward()
    for tensor in (action, log_density, mean.grad, log_std.grad):
        assert torch.isfinite(tensor).all()


def test_batches_merge_to_the_moments_of_all() -> None:
    torch.manual_seed(0)
    rows = torch.randn(1000, 3) * torch.tensor([1.0, 5.0, 0.1]) + torch.tensor([0.0, 100.0, -3.0])
    moments = RunningMoments(3)
    for part in rows.split([1, 399, 600]):
        moments.merge(part)
    torch.testing.assert_close(moments.mean, rows.double().mean(0))
    torch.testing.assert_close(moments.variance, rows.double().var(0, correction=0))
    assert moments.count == 1000
    scaled = moments.standardised(rows)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.std(0), torch.ones(3), atol=1e-3, rtol=0)


def test_before_anything_is_seen_nothing_changes() -> None:
    rows = torch.tensor([[0.5, -20.0]])
    torch.testing.assert_close(RunningMoments(2).standardised(rows), torch.tensor([[0.5, -10.0]]))


def test_what_is_not_finite_spoils_nothing() -> None:
    moments = RunningMoments(2)
    moments.merge(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))
    before = {name: buffer.clone() for name, buffer in moments.named_buffers()}
    moments.merge(torch.tensor([[torch.nan, 0.0], [torch.inf, 0.0]]))
    assert all(torch.equal(buffer, before[name]) for name, buffer in moments.named_buffers())


def test_a_scale_leaves_the_zero_where_it_is() -> None:
    moments = RunningMoments(1)
    moments.merge(torch.tensor([[4.0], [8.0]]))
    torch.testing.assert_close(moments.scaled(torch.tensor([0.0, 2.0])), torch.tensor([0.0, 1.0]))
