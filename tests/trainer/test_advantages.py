from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainer.replay.rollout import Ends, advantages, discounted_returns

GAMMA, LAMBDA = 0.97, 0.9


def rollout(steps: int) -> tuple[Tensor, Tensor, Tensor, Ends]:
    """Rewards, values and next values, and where episodes end."""
    torch.manual_seed(steps)
    terminated = (torch.rand(steps, 3) < 0.1).float()
    done = torch.maximum(terminated, (torch.rand(steps, 3) < 0.1).float())
    return *torch.randn(3, steps, 3), Ends(terminated, done)


@pytest.mark.parametrize("steps", [1, 2, 5, 64, 100])
def test_advantages_are_those_of_the_recursion(steps: int) -> None:
    reward, value, next_value, ends = rollout(steps)
    expected = torch.zeros(steps, 3)
    following = torch.zeros(3)
    for t in reversed(range(steps)):
        surprise = reward[t] + GAMMA * next_value[t] * (1 - ends.terminated[t]) - value[t]
        following = expected[t] = surprise + GAMMA * LAMBDA * (1 - ends.done[t]) * following
    torch.testing.assert_close(advantages(reward, value, next_value, ends, GAMMA, LAMBDA), expected)


@pytest.mark.parametrize("steps", [1, 3, 50])
def test_discounted_returns_are_those_of_the_recursion(steps: int) -> None:
    reward, _, _, ends = rollout(steps)
    running = before = torch.tensor([1.0, 2.0, 3.0])
    expected = []
    for t in range(steps):
        running = reward[t] + GAMMA * running
        expected.append(running)
        running = running * (1 - ends.done[t])
    sums, after = discounted_returns(reward, before, ends.done, GAMMA)
    torch.testing.assert_close(sums, torch.stack(expected))
    torch.testing.assert_close(after, running)
