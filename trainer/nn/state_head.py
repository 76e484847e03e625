"""A Gaussian for numbers whose deviation the network gives too, so that it differs from state to state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.nn.distributions import evaluated_gaussian


class StateGaussianHead(nn.Module):
    """A diagonal Gaussian, not squashed; see `trainer.nn.heads` for what its methods take and return.

    A log deviation beyond the bounds counts as the bound, and nothing moves it from there.

    Args:
        action_dim: numbers in an action.
        log_std_bounds: least and greatest log standard deviation.

    Attributes:
        outputs: numbers that the network before it gives: the means, then the log deviations.
        noise_dim: numbers of noise an action takes.
    """

    def __init__(self, action_dim: int, log_std_bounds: tuple[float, float]) -> None:
        super().__init__()
        self.outputs, self.noise_dim = 2 * action_dim, action_dim
        self._bounds = log_std_bounds

    def draw_noise(self, *shape: int) -> Tensor:
        """Draws standard normal noise (*shape, noise_dim) from the host's default generator."""
        return torch.randn(*shape, self.noise_dim)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Turns outputs (..., outputs) and noise (..., noise_dim) into actions (..., action_dim)."""
        mean, log_std = self._parts(outputs)
        return mean + log_std.exp() * noise

    def mode(self, outputs: Tensor) -> Tensor:
        """Returns the likeliest actions (..., action_dim)."""
        return outputs[..., : self.noise_dim]

    def slope(
        self, outputs: Tensor, action: Tensor, by_density: Tensor, by_entropy: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients by the outputs, (rows, outputs), and None: there are no other parameters."""
        mean, log_std = self._parts(outputs)
        inverse = (-log_std).exp()
        error = (action - mean) * inverse
        weight = by_density[..., None]
        by_log_std = weight * (error.square() - 1.0) + by_entropy[..., None, None]
        free = log_std == outputs[..., self.noise_dim :]
        return torch.cat([weight * error * inverse, torch.where(free, by_log_std, 0.0)], -1), None

    def evaluate(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the log-densities (...) of actions (..., action_dim), and the entropies (...)."""
        mean, log_std = self._parts(outputs)
        return evaluated_gaussian((action - mean) * (-log_std).exp(), log_std)

    def _parts(self, outputs: Tensor) -> tuple[Tensor, Tensor]:
        mean, log_std = outputs.chunk(2, -1)
        return mean, log_std.clamp(*self._bounds)
