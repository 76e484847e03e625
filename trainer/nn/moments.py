"""Running mean and variance of rows of numbers, merged batch by batch where the rows lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from trainer.nn.stacking import beside

_EPSILON = 1e-8
_CLIP = 10.0
"""Standardised numbers are cut here, as in OpenAI's baselines."""


class RunningMoments(nn.Module):
    """Mean and variance of all rows seen so far; the identity until the first are merged.

    Kept in float64: after a billion rows a new one would be lost in float32. Where the moments of several
    networks are stacked, rows have an axis of networks before all others.

    Args:
        size: numbers in a row.
    """

    count: Tensor
    mean: Tensor
    variance: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("variance", torch.ones(size, dtype=torch.float64))

    @torch.no_grad()
    def merge(
        self, rows: Tensor, learners: int = 1, average: Callable[[Sequence[Tensor]], list[Tensor]] = list
    ) -> None:
        """Adds rows (count, size), by the formula of Chan, Golub and LeVeque 1979.

        Rows with a number that is not finite would spoil all that follow; a batch that has one is left out.

        Args:
            rows: this learner's.
            learners: how many add as many rows each, at the same time.
            average: returns the means of tensors over all of them.
        """
        values = rows.double()
        added, own = float(rows.shape[-2] * learners), values.mean(-2)
        (mean,) = average([own])
        (variance,) = average([(values - own.unsqueeze(-2)).square().mean(-2) + (own - mean).square()])
        count = self.count.unsqueeze(-1)
        total = count + added
        shift = mean - self.mean
        merged = variance * added + self.variance * count + shift.square() * count * added / total
        finite = (mean + variance).isfinite().all(-1, keepdim=True)
        self.mean.copy_(torch.where(finite, self.mean + shift * added / total, self.mean))
        self.variance.copy_(torch.where(finite, merged / total, self.variance))
        self.count.copy_(torch.where(finite, total, count).squeeze(-1))

    def standardised(self, rows: Tensor) -> Tensor:
        """Returns rows (..., size) less the mean, in deviations, cut at 10; float32."""
        scaled = (rows - beside(self.mean, rows).float()) * self._inverse_deviation(rows)
        return scaled.clamp(-_CLIP, _CLIP)

    def scaled(self, rows: Tensor) -> Tensor:
        """Returns rows (..., size) in deviations, cut at 10, with the zero where it was; float32."""
        return (rows * self._inverse_deviation(rows)).clamp(-_CLIP, _CLIP)

    def _inverse_deviation(self, rows: Tensor) -> Tensor:
        return (beside(self.variance, rows) + _EPSILON).rsqrt().float()
