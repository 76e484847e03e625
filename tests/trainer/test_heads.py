from __future__ import annotations

import pytest
import torch
from torch.distributions import Categorical, Normal

from trainer.nn.heads import CategoricalHead, GaussianHead, Head, StateGaussianHead

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
