from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from trainer.algorithms.multi_task_ppo_learner import fitted_returns

EPISODES, STEPS, OBSERVATION = 9, 25, 4
RIDGE = 1e-5
TASK = torch.eye(4)[[0, 1, 2, 0, 1, 2, 0, 2, 2]]
"""Of nine episodes: those of task 1 are two, and task 3 has none."""


def played() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    observation = torch.randn(EPISODES, STEPS, OBSERVATION) * 8
    observation[..., 3] = 0.5  # as Meta-World's padding: never moves
    return observation, torch.randn(EPISODES, STEPS).cumsum(1) * 30 + observation.sum(-1)


def by_numpy(observation: Tensor, returns: Tensor) -> np.ndarray:
    """The fit that NumPy's least squares gives, the ridge as more equations, one task after the other."""
    seen = np.clip(observation.numpy().astype(np.float64), -10, 10)
    time = np.broadcast_to(np.arange(STEPS)[:, None] / 100, (EPISODES, STEPS, 1))
    features = np.concatenate([seen, seen**2, time, time**2, time**3, np.ones_like(time)], -1)
    found = np.zeros((EPISODES, STEPS))
    for task in range(3):
        own = np.flatnonzero(TASK[:, task].numpy())
        rows = features[own].reshape(-1, features.shape[-1])
        width = rows.shape[1]
        left = np.concatenate([rows, np.sqrt(RIDGE) * np.eye(width)])
        right = np.concatenate([returns.numpy()[own].reshape(-1), np.zeros(width)])
        found[own] = features[own] @ np.linalg.lstsq(left, right, rcond=None)[0]
    return found


def test_the_fit_is_numpys() -> None:
    observation, returns = played()
    found = fitted_returns(observation, returns, TASK, RIDGE)
    np.testing.assert_allclose(found.numpy(), by_numpy(observation, returns), rtol=1e-5, atol=1e-4)


def test_two_learners_find_what_one_does_with_all_episodes() -> None:
    observation, returns = played()
    whole = fitted_returns(observation[:8], returns[:8], TASK[:8], RIDGE)
    halves = [slice(0, 4), slice(4, 8)]
    sent: list[list[Tensor]] = []
    for half in halves:
        fitted_returns(
            observation[half], returns[half], TASK[half], RIDGE, 2, lambda own: sent.append(list(own)) or own
        )
    mean = [(one + other) / 2 for one, other in zip(*sent, strict=True)]
    for half in halves:
        found = fitted_returns(observation[half], returns[half], TASK[half], RIDGE, 2, lambda _: mean)
        torch.testing.assert_close(found, whole[half], rtol=1e-5, atol=1e-4)


def test_numbers_that_are_not_finite_stay_so() -> None:
    observation, returns = played()
    returns[0, 3] = float("nan")
    assert not fitted_returns(observation, returns, TASK, RIDGE).isfinite().all()
