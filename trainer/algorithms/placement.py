"""Where a policy acts whose learner is on a GPU."""

from __future__ import annotations

from torch import nn

_HOST_PRODUCTS = 1_000_000
"""Multiplications a step up to which the host acts: as long as a GPU takes to be asked and to answer."""


def acts_on_host(weights: int, envs: int) -> bool:
    """Returns whether a policy beside a GPU acts on the host, which small ones do faster.

    Args:
        weights: parameters of the network that acts.
        envs: observations in a call.
    """
    return weights * envs <= _HOST_PRODUCTS


def count_parameters(network: nn.Module) -> int:
    """Returns how many numbers a network learns."""
    return sum(parameter.numel() for parameter in network.parameters())
