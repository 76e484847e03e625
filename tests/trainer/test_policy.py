import numpy as np
import pytest
import torch
from torch.distributions import Independent, Normal, TanhTransform, TransformedDistribution

from trainer.nn.policy import Policy, squashed_gaussian


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


def test_actions_before_learning_and_noise_are_drawn_from_the_generators_of_the_host():
    sizes = {"hidden": [16], "one_hot": False, "multi_head": False, "init": "he_uniform"}
    policy = Policy(5, 2, 1, **sizes, log_std_bounds=(-20, 2))
    drawn = policy.uniform(np.random.default_rng(1), 3)
    expected = np.random.default_rng(1).uniform(-1.0, 1.0, (3, 2)).astype(np.float32)
    np.testing.assert_array_equal(drawn, expected)
    assert drawn.dtype == np.float32
    torch.manual_seed(1)
    noise = policy.draw_noise(3)
    torch.manual_seed(1)
    assert torch.equal(noise, torch.randn(3, policy.noise_dim))
