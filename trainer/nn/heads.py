"""What a policy's outputs mean: a Gaussian for numbers, categorical distributions for choices.

Both draw from noise that is given to them, so that whoever acts can draw it for many steps at once. All
shapes may have an axis of networks before them, where the heads of several are stacked.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.nn.distributions import evaluated_gaussian
from trainer.nn.stacking import beside
from trainer.nn.state_head import StateGaussianHead


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
