"""What episodes bring from each of their steps on, foreseen by one least-squares fit for each task.

The linear feature baseline of Duan et al. 2016: the return is taken for linear in the observation, its
square and three powers of time. It is fitted afresh to the episodes it then judges, and learns nothing
between rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

_CLIP = 10.0
_TIME_UNIT = 100.0
"""Steps; both from the code of Duan et al. 2016."""


def baseline_features(observation: Tensor) -> Tensor:
    """Returns the features of whole episodes.

    Args:
        observation: (episodes, steps, observation_dim).

    Returns:
        float64 (episodes, steps, 2 * observation_dim + 4).
    """
    seen = observation.double().clamp(-_CLIP, _CLIP)
    steps = torch.arange(seen.shape[1], dtype=seen.dtype, device=seen.device)
    time = (steps / _TIME_UNIT)[:, None].expand(*seen.shape[:2], 1)
    return torch.cat([seen, seen.square(), time, time**2, time**3, torch.ones_like(time)], -1)


def fitted_returns(
    observation: Tensor,
    returns: Tensor,
    task: Tensor,
    ridge: float,
    learners: int = 1,
    average: Callable[[Sequence[Tensor]], list[Tensor]] = list,
) -> Tensor:
    """Fits each task's returns by its own episodes, and says what the fits give for the same steps.

    The normal equations are solved in float64, in which the ridge keeps them definite. Static shapes, and no
    waiting for the device. Numbers that are not finite give others that are not.

    Args:
        observation: of whole episodes of equal length, (episodes, steps, observation_dim).
        returns: (episodes, steps).
        task: one-hot, (episodes, tasks); a task without episodes is no fault.
        ridge: added to the diagonal of each task's equations.
        learners: how many fit the same tasks together, with as many episodes each.
        average: returns the means of tensors over all of them; this one is alone by default.

    Returns:
        float32 (episodes, steps).
    """
    features = baseline_features(observation)
    transposed, weight = features.transpose(1, 2), task.double()
    squares = _by_task(weight, transposed @ features)
    products = _by_task(weight, transposed @ returns.double()[..., None])
    squares, products = (mean * learners for mean in average([squares, products]))
    squares.diagonal(dim1=-2, dim2=-1).add_(ridge)
    factor, _ = torch.linalg.cholesky_ex(squares)
    coefficients = torch.cholesky_solve(products, factor)
    own = _by_task(weight.T, coefficients)
    return (features @ own).squeeze(-1).float()


def _by_task(weight: Tensor, values: Tensor) -> Tensor:
    """Returns sums (columns, ...) of values (rows, ...), weighted by (rows, columns)."""
    sums: Tensor = torch.tensordot(weight, values, dims=([0], [0]))
    return sums
