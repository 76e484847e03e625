"""How fit the networks still are to learn: dormant neurons, effective rank, norms, values by task.

Made for each evaluation, not for each update: `mclean2025-mt10` (width 1024, batch 1280) takes about a second
on two cores, most of it for the singular values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from trainer.nn.deterministic_policy import DeterministicPolicy
from trainer.nn.epsilon_greedy import EpsilonGreedyPolicy
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.policy import Policy
from trainer.replay import Batch

DORMANT_CRITIC = "diagnostics/dormant/critic"

_RANK_CRITIC = "diagnostics/effective_rank/critic"
_NORM_CRITIC = "norm/critic"
_DORMANT_SCORE = 0.1
_EPSILON = 1e-9
"""Of the score's denominator, as in the code of McLean et al. 2025."""
_RANK_SHARE = 0.99
_SEED = 0
"""Of the actions drawn: the same noise every time, so that only the networks change."""
_LEVELS = {1024: 0.150, 2048: 0.317, 4096: 0.489}
"""Width to the share of dormant neurons that MT10 ended with in McLean et al. 2025, figure 4."""


@torch.no_grad()
def diagnose(
    policy: Policy | DeterministicPolicy,
    critics: EnsembleMLP,
    read: Callable[[Tensor], Tensor],
    batch: Batch,
    tasks: Sequence[str],
) -> dict[str, float]:
    """Examines an actor and its critics, without autocast, and leaves no trace in a random generator.

    Args:
        policy: whose actor is examined.
        critics: of observations and actions.
        read: maps their outputs (critics, batch, outputs) to values (critics, batch).
        batch: what the neurons are shown: the last training batch. The effective rank is at most its size.
        tasks: names of the tasks.

    Returns:
        `diagnostics/dormant/actor` and `/critic` (share 0..1 of the hidden neurons) and
        `diagnostics/effective_rank/critic` (of the last hidden layer), both of the first critic and for
        actions that the policy draws, as in the code of McLean et al. 2025; `norm/actor` and `norm/critic`
        (of all parameters); and `q/<task>` (mean of both critics for the batch's actions; of tasks in the
        batch).
    """
    features = policy.encoder(batch.observation, batch.task)
    noise = torch.randn(batch.action.shape, generator=torch.Generator().manual_seed(_SEED))
    drawn = policy.sample(batch.observation, batch.task, noise.to(features.device))
    actor_layers = policy.actor.hidden(features)
    critic_layers = [layer[:1] for layer in critics.hidden(torch.cat([features, drawn], -1))]
    values = read(critics(torch.cat([features, batch.action], -1), batch.task)).mean(0)
    numbers = {
        "diagnostics/dormant/actor": dormant_share(policy.actor.neurons(actor_layers)),
        DORMANT_CRITIC: dormant_share(critics.neurons(critic_layers)),
        _RANK_CRITIC: effective_rank(critic_layers[-1]).mean(),
        "norm/actor": _norm(policy.actor),
        _NORM_CRITIC: _norm(critics),
    }
    return _numbers(numbers) | _by_task(values, batch.task, tasks)


@torch.no_grad()
def diagnose_values(policy: EpsilonGreedyPolicy, batch: Batch, tasks: Sequence[str]) -> dict[str, float]:
    """Examines the network that gives the value of each choice, without autocast, as a critic.

    Args:
        policy: whose network is examined.
        batch: as for `diagnose`.
        tasks: names of the tasks.

    Returns:
        As of `diagnose`: `diagnostics/dormant/critic`, `diagnostics/effective_rank/critic`, `norm/critic`,
        and `q/<task>`, of the batch's choices. The rank of a dueling network is of both streams together.
    """
    network = policy.actor
    features = policy.encoder(batch.observation, batch.task)
    layers = network.hidden(features)
    values = network(features).gather(-1, batch.action.long()).squeeze(-1)
    numbers = {
        DORMANT_CRITIC: dormant_share(network.neurons(layers)),
        _RANK_CRITIC: effective_rank(layers[-1]).mean(),
        _NORM_CRITIC: _norm(network),
    }
    return _numbers(numbers) | _by_task(values, batch.task, tasks)


def dormant_share(layers: Sequence[Tensor]) -> Tensor:
    """Returns the share of dormant neurons among all in these layers (Sokar et al. 2023).

    A neuron's score is the mean magnitude of its activation over the batch, divided by the mean of that over
    its layer (equation 1); it is dormant if the score is at most 0.1, as McLean et al. 2025 count.

    Args:
        layers: activations, (members, batch, width) each; a member is a network of its own.
    """
    dormant, neurons = [], 0
    for layer in layers:
        activity = layer.abs().mean(-2)
        score = activity / (activity.mean(-1, keepdim=True) + _EPSILON)
        dormant.append((score <= _DORMANT_SCORE).sum())
        neurons += score.numel()
    return torch.stack(dormant).sum() / neurons


def effective_rank(features: Tensor) -> Tensor:
    """Returns how many of the largest singular values make up 99% of the sum of all (Kumar et al. 2021).

    Args:
        features: (..., batch, width).

    Returns:
        Counts, float64 (...); 0 where all features are zero, NaN for all if any feature is not finite.
    """
    if not features.isfinite().all():  # which the decomposition would raise an error for
        return features.new_full(features.shape[:-2], torch.nan, dtype=torch.float64)
    values = torch.linalg.svdvals(features.cpu()).double()  # a GPU takes longer for so few
    total = values.sum(-1)
    missing = values.cumsum(-1) < _RANK_SHARE * total.unsqueeze(-1)
    return torch.where(total > 0, missing.sum(-1) + 1.0, 0.0)


class PlasticityWatch:
    """Says so, once for each level, when the share of dormant neurons in the critics passes it.

    Args:
        passed: the highest level passed before, for a run that is resumed.

    Attributes:
        passed: the highest level passed so far, 0 for none.
    """

    def __init__(self, passed: float = 0.0) -> None:
        self.passed = passed

    def look(self, numbers: Mapping[str, float]) -> str | None:
        """Returns a warning if the share, where these numbers have it, passes a level for the first time."""
        share = numbers.get(DORMANT_CRITIC, 0.0)
        new = {width: level for width, level in _LEVELS.items() if self.passed < level <= share}
        if not new:
            return None
        width, self.passed = max(new.items())
        return (
            f"{share:.1%} of the critics' hidden neurons are dormant; MT10 in McLean et al. 2025 ended with "
            f"{self.passed:.1%} at width {width}. What helps is more tasks (at width 4096 MT50 ended with "
            "12.1%, MT10 with 48.9%), not a smaller network: those had fewer dormant neurons and less success"
        )


def _norm(network: torch.nn.Module) -> Tensor:
    norms = [torch.linalg.vector_norm(parameter) for parameter in network.parameters()]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return norm


def _numbers(numbers: Mapping[str, Tensor]) -> dict[str, float]:
    return {name: float(value) for name, value in numbers.items()}


def _by_task(values: Tensor, task: Tensor, tasks: Sequence[str]) -> dict[str, float]:
    """Returns `q/<task>`, the mean of the values (batch,) of each task that the batch has."""
    totals = torch.zeros(len(tasks), device=values.device).index_add_(0, task, values)
    counts = torch.zeros_like(totals).index_add_(0, task, torch.ones_like(values))
    by_task = zip(tasks, (totals / counts).tolist(), counts.tolist(), strict=True)
    return {f"q/{name}": value for name, value, count in by_task if count}
