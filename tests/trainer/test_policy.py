import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from trainer.nn.policy import squashed_gaussian


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
