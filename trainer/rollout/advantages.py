"""Sums over a rollout's time axis in a number of operations logarithmic in its length.

All shapes may have axes before those named, for several rollouts of one shape.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Ends(NamedTuple):
    """Where episodes end, all float32 (steps, envs) of 0 and 1.

    Attributes:
        terminated: the episode ended for good: nothing follows.
        done: another episode follows, terminated or not.
    """

    terminated: Tensor
    done: Tensor


def advantages(
    reward: Tensor, value: Tensor, next_value: Tensor, ends: Ends, gamma: float, gae_lambda: float
) -> Tensor:
    """Estimates advantages (Schulman et al. 2016, equation 16).

    Where an episode was cut, by a time limit or by the end of the rollout, what would have followed is the
    value of the observation it was cut at; where it terminated, nothing follows.

    Args:
        reward: (steps, envs).
        value: of the observations, (steps, envs).
        next_value: of what each action led to, the last observation of an episode included; (steps, envs).
        ends: of the episodes.
        gamma: discount a step.
        gae_lambda: mix: 0 is one step, 1 the whole rollout.

    Returns:
        (steps, envs).
    """
    surprise = reward + gamma * next_value * (1.0 - ends.terminated) - value
    decay = gamma * gae_lambda * (1.0 - ends.done)
    return _scan(surprise.flip(-2), decay.flip(-2)).flip(-2)


def discounted_returns(reward: Tensor, before: Tensor, done: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Sums the discounted rewards of each episode so far.

    Args:
        reward: (steps, envs).
        before: the sums that the last rollout ended with, (envs,); zero where its last step ended an episode.
        done: where an episode ends, float (steps, envs).
        gamma: discount a step.

    Returns:
        The sums (steps, envs), and those for the next rollout to begin with (envs,).
    """
    going_on = gamma * (1.0 - done)
    decay = torch.cat([torch.zeros_like(reward[..., :1, :]), going_on[..., :-1, :]], -2)
    first = reward[..., :1, :] + gamma * before.unsqueeze(-2)
    sums = _scan(torch.cat([first, reward[..., 1:, :]], -2), decay)
    return sums, sums[..., -1, :] * (1.0 - done[..., -1, :])


def _scan(values: Tensor, decay: Tensor) -> Tensor:
    """Solves sums[t] = values[t] + decay[t] * sums[t - 1] along the last axis but one, by doubling.

    After the round of a shift, each sum reaches back that many more steps (Hillis and Steele 1986).
    """
    steps, shift = values.shape[-2], 1
    while shift < steps:
        late, early = _apart(values, shift)
        values = torch.cat(
            [values.narrow(-2, 0, shift), late + decay.narrow(-2, shift, steps - shift) * early], -2
        )
        if 2 * shift < steps:
            late, early = _apart(decay, shift)
            decay = torch.cat([torch.zeros_like(decay.narrow(-2, 0, shift)), late * early], -2)
        shift *= 2
    return values


def _apart(values: Tensor, shift: int) -> tuple[Tensor, Tensor]:
    """Returns all steps from the one numbered `shift`, and beside each of them the one as much before it."""
    rest = values.shape[-2] - shift
    return values.narrow(-2, shift, rest), values.narrow(-2, 0, rest)
