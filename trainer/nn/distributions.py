"""Gaussians of policies, in float32: plain, and squashed by tanh into (-1, 1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_HALF_LOG_TWO_PI = 0.5 * math.log(2.0 * math.pi)
_LOG_TWO = math.log(2.0)


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


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Turns standard normal noise into actions with their log-densities.

    The density accounts for the squashing in the form of Haarnoja et al. 2018, appendix C, written so
    that it stays finite for large arguments: log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)).

    Args:
        mean: (..., actions), before squashing.
        log_std: (..., actions).
        noise: (..., actions), the draw.

    Returns:
        Actions (..., actions), differentiable in both arguments, and log-densities (...).
    """
    raw = mean + log_std.exp() * noise
    # in as few operations as can be, constants last: on a GPU each costs more than its arithmetic
    gaussian = -0.5 * noise.square() - log_std
    log_density = torch.add(gaussian, raw + functional.softplus(-2.0 * raw), alpha=2.0).sum(-1)
    return torch.tanh(raw), log_density - noise.shape[-1] * (_HALF_LOG_TWO_PI + 2.0 * _LOG_TWO)
