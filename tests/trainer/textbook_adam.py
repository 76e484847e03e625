"""A step of Adam, written out."""

from collections.abc import Mapping

from torch import Tensor


def second_step(gradient: Tensor, state: Mapping[str, Tensor], max_norm: float) -> Tensor:
    """What the second step takes off the parameters, at a rate of 0.01 with an epsilon of 1e-5.

    Args:
        gradient: of all parameters, before it is clipped.
        state: the moments after the first step.
        max_norm: to which it is clipped.
    """
    clipped = gradient * min(1.0, max_norm / float(gradient.norm()))
    first = 0.9 * state["exp_avg"] + 0.1 * clipped
    second = 0.999 * state["exp_avg_sq"] + 0.001 * clipped**2
    return 1e-2 * (first / (1 - 0.9**2)) / ((second / (1 - 0.999**2)).sqrt() + 1e-5)
