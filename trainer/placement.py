"""Where a policy acts whose learner is on a GPU. No torch in here: forecasts of memory ask too."""

from __future__ import annotations

_HOST_PRODUCTS = 4_000_000
"""Multiplications a call up to which the host acts.

Until there they are less than a fifth of what a call takes a processor, most of which is some thirty small
operations. To ask a GPU and wait for its answer takes longer.
"""


def acts_on_host(weights: int, envs: int) -> bool:
    """Returns whether a policy beside a GPU acts on the host, which small ones do faster.

    Args:
        weights: parameters of the network that acts.
        envs: observations in a call.
    """
    return weights * envs <= _HOST_PRODUCTS
