"""Maps a critic's outputs to values, and to losses against targets, in float32."""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor


class Value(Protocol):
    """An interpretation of a critic's outputs.

    Attributes:
        outputs: outputs of a critic for one value.
    """

    outputs: int

    def mean(self, outputs: Tensor) -> Tensor:
        """Maps outputs (..., outputs) to expected values (...)."""

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Returns the sum of all losses of outputs (critics, batch, outputs) for targets (batch,).

        Of several seeds, which are the first dimension of both, the sum of each.
        """


class ScalarValue:
    """The one output is the value; the loss is the squared error."""

    outputs = 1

    def mean(self, outputs: Tensor) -> Tensor:
        """Maps outputs (..., 1) to values (...)."""
        return outputs.squeeze(-1)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Returns the sum of squared errors."""
        return (outputs.squeeze(-1) - target[..., None, :]).square().sum((-2, -1))


class CategoricalValue:
    """The outputs are the logits of a distribution over fixed values; the loss is the cross-entropy.

    A target is a number, and becomes a distribution of that mean: over the two nearest values, each the more
    the nearer (two-hot), or as a Gaussian (HL-Gauss, Farebrother et al. 2024). Beyond the bound it counts as
    the bound. Near it the Gaussian is cut off, which draws its mean inwards by a fraction of a bin.

    Args:
        bins: values, at least 2, evenly from -bound to bound.
        bound: greatest value.
        smoothing: the Gaussian's standard deviation in distances of two values; 0 for two-hot.
        device: where the values lie.
    """

    def __init__(
        self, bins: int, bound: float, smoothing: float = 0.0, device: torch.device | str = "cpu"
    ) -> None:
        self.outputs = bins
        self._bound = bound
        self._smoothing = smoothing
        self._distance = 2.0 * bound / (bins - 1)
        self._values = torch.linspace(-bound, bound, bins, device=device)
        self._numbers = torch.arange(bins, device=device, dtype=torch.float32)
        self._edges = torch.arange(bins + 1, device=device, dtype=torch.float32) - 0.5

    def mean(self, outputs: Tensor) -> Tensor:
        """Maps logits (..., bins) to the means of their distributions (...)."""
        return (outputs.float().softmax(-1) * self._values).sum(-1)

    def loss(self, outputs: Tensor, target: Tensor) -> Tensor:
        """Returns the sum of the cross-entropies."""
        wanted = self.distribution(target)[..., None, :, :]
        return -(wanted * outputs.float().log_softmax(-1)).sum((-3, -2, -1))

    def distribution(self, target: Tensor) -> Tensor:
        """Maps targets (...) to probabilities (..., bins); not numbers where a target is not finite."""
        # a clamp makes a number of what is infinite, and would hide it from the guard: inf - inf is none
        inside = target.clamp(-self._bound, self._bound) + (target - target)
        place = ((inside + self._bound) / self._distance)[..., None]
        if not self._smoothing:
            return (1.0 - (place - self._numbers).abs()).clamp_min(0.0)
        below = torch.erf((self._edges - place) / (self._smoothing * math.sqrt(2.0)))
        mass: Tensor = below.diff(dim=-1) / (below[..., -1:] - below[..., :1])
        return mass
