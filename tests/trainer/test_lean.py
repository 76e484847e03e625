"""What acts on the host beside a GPU draws what the policy's `sample` does, but for the last bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor

from trainer.nn.deterministic_policy import DeterministicPolicy
from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
from trainer.nn.lean import LeanActor
from trainer.nn.policy import ExploringActor, Policy

OBSERVATION, ACTION, TASKS = 7, 3, 4
SIZES = {"hidden": [32, 24], "init": "he_uniform"}
GAUSSIAN = partial(Policy, OBSERVATION, ACTION, TASKS, **SIZES, log_std_bounds=(-3.0, 0.5))
DETERMINISTIC = partial(DeterministicPolicy, OBSERVATION, ACTION, TASKS, **SIZES, exploration_noise=0.3)
GREEDY = partial(EpsilonGreedyPolicy, OBSERVATION, 5, epsilon=0.4)
POLICIES: dict[str, Callable[[], ExploringActor]] = {
    "gaussian": partial(GAUSSIAN, one_hot=True, multi_head=False),
    "gaussian, heads": partial(GAUSSIAN, one_hot=True, multi_head=True),
    "gaussian, heads, no id": partial(GAUSSIAN, one_hot=False, multi_head=True),
    "gaussian, tanh": partial(GAUSSIAN, one_hot=False, multi_head=False, log_std_bounding="tanh"),
    "deterministic": partial(DETERMINISTIC, one_hot=True, multi_head=False),
    "deterministic, heads": partial(DETERMINISTIC, one_hot=True, multi_head=True),
    "greedy": partial(GREEDY, hidden=[16], dueling=False),
    "greedy, dueling": partial(GREEDY, hidden=[16, 16], dueling=True),
}


def change(policy: ExploringActor) -> None:
    """Gives all tensors other numbers, as a learner would: in place."""
    with torch.no_grad():
        for tensor in policy.state_dict().values():
            tensor.add_(0.1 * torch.randn_like(tensor))
        policy.encoder.std.abs_().add_(0.5)


def seen(policy: ExploringActor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
    dtype = policy.encoder.mean.dtype
    tasks = torch.from_numpy(np.arange(rows, dtype=np.int32) * 3 % TASKS)
    return torch.randn(rows, OBSERVATION, dtype=dtype), tasks, policy.draw_noise(rows).to(dtype)


def drawn(lean: LeanActor, given: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    observation, task, noise = (tensor.numpy() for tensor in given)
    return torch.from_numpy(lean(observation, task, noise))


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize(("dtype", "within"), [(torch.float32, 1e-6), (torch.float64, 1e-12)], ids=str)
@pytest.mark.parametrize("name", POLICIES)
def test_it_draws_what_the_policy_draws(name: str, dtype: torch.dtype, within: float, rows: int) -> None:
    torch.manual_seed(0)
    policy = POLICIES[name]().to(dtype)
    change(policy)
    lean = policy.lean(rows)
    assert lean is not None
    for _ in range(3):
        given = seen(policy, rows)
        observation, task, noise = given
        expected = policy.sample(observation, task.long(), noise)
        found = drawn(lean, given)
        assert found.shape == (rows, policy.action_dim)
        torch.testing.assert_close(found.to(dtype), expected.to(dtype), rtol=0.0, atol=within)
        change(policy)
        lean.refresh()


def test_an_action_stays_when_the_next_is_drawn() -> None:
    torch.manual_seed(0)
    policy = POLICIES["gaussian"]()
    lean = policy.lean(5)
    first = drawn(lean, seen(policy, 5))
    kept = first.clone()
    assert not torch.equal(drawn(lean, seen(policy, 5)), first)
    assert torch.equal(first, kept)


@pytest.mark.parametrize("name", ["gaussian", "gaussian, tanh", "deterministic"])
def test_what_is_not_a_number_shows(name: str) -> None:
    """An environment that goes wrong is named by what its observations lead to."""
    policy = POLICIES[name]()
    observation, task, noise = seen(policy, 3)
    observation[1, 2] = float("nan")
    found = drawn(policy.lean(3), (observation, task, noise))
    assert found.isnan().all(1).tolist() == [False, True, False]
