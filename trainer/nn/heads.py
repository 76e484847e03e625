"""What a policy's outputs mean: a Gaussian for numbers, categorical distributions for choices.

Both draw from noise that is given to them, so that whoever acts can draw it for many steps at once. All
shapes may have an axis of networks before them, where the heads of several are stacked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.nn.stacking import beside

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)


class GaussianHead(nn.Module):
    """A diagonal Gaussian whose deviation is a parameter of its own, the same in every state.

    Args:
        action_dim: numbers in an action.
        initial_log_std: log standard deviation of each at the start.

    Attributes:
        outputs: numbers that the network before it gives: the means.
        noise_dim: numbers of noise an action takes.
    """

    def __init__(self, action_dim: int, initial_log_std: float) -> None:
        super().__init__()
        self.outputs = self.noise_dim = action_dim
        self.log_std = nn.Parameter(torch.full((action_dim,), initial_log_std))

    def draw_noise(self, *shape: int) -> Tensor:
        """Draws standard normal noise (*shape, noise_dim) from the host's default generator."""
        return torch.randn(*shape, self.noise_dim)

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Turns outputs (..., outputs) and noise (..., noise_dim) into actions (..., action_dim)."""
        return outputs + self.log_std.exp() * noise

    def mode(self, outputs: Tensor) -> Tensor:
        """Returns the likeliest actions (..., action_dim)."""
        return outputs

    def slope(
        self, outputs: Tensor, action: Tensor, by_density: Tensor, by_entropy: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of sum(by_density * log-density + by_entropy * entropy).

        Args:
            outputs: (rows, outputs).
            action: (rows, action_dim).
            by_density: (rows,).
            by_entropy: a scalar, the same for all rows.

        Returns:
            By the outputs, (rows, outputs), and by `log_std`, (action_dim,).
        """
        inverse = (-beside(self.log_std, outputs)).exp()
        error = (action - outputs) * inverse
        weighted = by_density[..., None] * error
        by_all = by_entropy * action.shape[-2] - by_density.sum(-1)
        by_log_std = (weighted * error).sum(-2) + by_all[..., None]
        return weighted * inverse, by_log_std

    def evaluate(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the log-densities (...) of actions (..., action_dim), and the entropies (...)."""
        log_std = beside(self.log_std, outputs)
        return evaluated_gaussian((action - outputs) * (-log_std).exp(), log_std)


class StateGaussianHead(nn.Module):
    """A diagonal Gaussian, not squashed, whose deviation the network gives too, for each state anew.

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
        """Returns the gradients by the outputs, (rows, outputs), and None; see `GaussianHead.slope`."""
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


class CategoricalHead(nn.Module):
    """One categorical distribution for each choice an action makes, independent of each other.

    Args:
        nvec: how many there are to choose from, choice by choice.

    Attributes:
        outputs: numbers that the network before it gives: the logits of all choices.
        noise_dim: numbers of noise an action takes.
    """

    def __init__(self, nvec: Sequence[int]) -> None:
        super().__init__()
        self._nvec = list(nvec)
        self.outputs = self.noise_dim = sum(nvec)
        for choice, count in enumerate(nvec):
            self.register_buffer(f"_numbers_{choice}", torch.arange(count), persistent=False)

    def draw_noise(self, *shape: int) -> Tensor:
        """Draws Gumbel noise (*shape, noise_dim) from the host's default generator."""
        return torch.empty(*shape, self.noise_dim).exponential_().log_().neg_()

    def sample(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Turns outputs (..., outputs) and noise (..., noise_dim) into the indices chosen (..., choices).

        The greatest of logits plus Gumbel noise is a draw from their softmax.
        """
        return self.mode(outputs + noise)

    def mode(self, outputs: Tensor) -> Tensor:
        """Returns the likeliest indices (..., choices), as floats."""
        return torch.stack([part.argmax(-1) for part in torch.split(outputs, self._nvec, -1)], -1).float()

    def slope(
        self, outputs: Tensor, action: Tensor, by_density: Tensor, by_entropy: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the gradients of sum(by_density * log-probability + by_entropy * entropy).

        Args:
            outputs: (rows, outputs).
            action: (rows, choices).
            by_density: (rows,).
            by_entropy: a scalar, the same for all rows.

        Returns:
            By the outputs, (rows, outputs), and None: there are no other parameters.
        """
        slopes = []
        for choice, part in enumerate(torch.split(outputs, self._nvec, -1)):
            logs = functional.log_softmax(part, -1)
            shares = logs.exp()
            chosen = action[..., choice, None] == self.get_buffer(f"_numbers_{choice}")
            surprise = logs - (shares * logs).sum(-1, keepdim=True)
            towards = by_density[..., None] * (chosen.float() - shares)
            slopes.append(towards - by_entropy[..., None, None] * shares * surprise)
        return slopes[0] if len(slopes) == 1 else torch.cat(slopes, -1), None

    def evaluate(self, outputs: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the log-probabilities (...) of indices (..., choices), and the entropies (...)."""
        log_probabilities, entropies = [], []
        for choice, part in enumerate(torch.split(outputs, self._nvec, -1)):
            logs = functional.log_softmax(part, -1)
            # a gather's backward is a scatter, which CUDA does in any order; this is exact and in order
            chosen = action[..., choice, None] == self.get_buffer(f"_numbers_{choice}")
            log_probabilities.append(torch.where(chosen, logs, 0.0).sum(-1))
            entropies.append(-(logs.exp() * logs).sum(-1))
        if len(self._nvec) == 1:
            return log_probabilities[0], entropies[0]
        return torch.stack(log_probabilities).sum(0), torch.stack(entropies).sum(0)


Head = GaussianHead | StateGaussianHead | CategoricalHead


def evaluated_gaussian(error: Tensor, log_std: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-densities (...) of draws from diagonal Gaussians, and the entropies (...).

    Args:
        error: (..., numbers), the draws less the means, in deviations.
        log_std: (..., numbers), or what broadcasts with it.
    """
    numbers, volume = error.shape[-1], log_std.sum(-1)
    constant = numbers * _HALF_LOG_TWO_PI
    log_density = -0.5 * error.square().sum(-1) - volume - constant
    return log_density, (volume + constant + 0.5 * numbers).expand_as(log_density)
