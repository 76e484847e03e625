"""How fit the networks still are to learn: dormant neurons, effective rank, norms, values by task.

Made for each evaluation, not for each update: `mclean2025-mt10` (width 1024, batch 1280) takes about a second
on two cores, most of it for the singular values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trainer.algorithms.sac_learner import SAC
from trainer.replay import Batch

DORMANT_CRITIC = "diagnostics/dormant/critic"

_DORMANT_SCORE = 0.1
_EPSILON = 1e-9
"""Of the score's denominator, as in the code of McLean et al. 2025."""
_RANK_SHARE = 0.99
_SEED = 0
"""Of the actions drawn: the same noise every time, so that only the networks change."""
_LEVELS = {1024: 0.150, 2048: 0.317, 4096: 0.489}
"""Width to the share of dormant neurons that MT10 ended with in McLean et al. 2025, figure 4."""


@torch.no_grad()
def diagnose(agent: SAC, batch: Batch, tasks: Sequence[str]) -> dict[str, float]:
    """Examines a learner, without autocast, and leaves no trace in it or in a random generator.

    Args:
        agent: the learner.
        batch: what its neurons are shown: the last training batch. The effective rank is at most its size.
        tasks: names of the tasks.

    Returns:
        `diagnostics/dormant/actor` and `/critic` (share 0..1 of the hidden neurons) and
        `diagnostics/effective_rank/critic` (of the last hidden layer), both of the first critic and for
        actions that the policy draws, as in the code of McLean et al. 2025; `norm/actor` and `norm/critic`
        (of all parameters); `q/<task>` (mean of both critics for the batch's actions; of tasks in the batch)
        and `alpha/<task>`.
    """
    policy = agent.policy
    features = policy.encoder(batch.observation, batch.task)
    noise = torch.randn(batch.action.shape, generator=torch.Generator().manual_seed(_SEED))
    drawn = policy.sample(batch.observation, batch.task, noise.to(features.device))
    actor_layers = policy.actor.hidden(features)
    critic_layers = [layer[:1] for layer in agent.critics.hidden(torch.cat([features, drawn], -1))]
    values = agent.value.mean(agent.critics(torch.cat([features, batch.action], -1), batch.task)).mean(0)
    totals = torch.zeros(len(tasks), device=values.device).index_add_(0, batch.task, values)
    counts = torch.zeros_like(totals).index_add_(0, batch.task, torch.ones_like(values))
    found = {
        "diagnostics/dormant/actor": dormant_share(policy.actor.neurons(actor_layers)),
        DORMANT_CRITIC: dormant_share(agent.critics.neurons(critic_layers)),
        "diagnostics/effective_rank/critic": effective_rank(critic_layers[-1]).mean(),
        "norm/actor": _norm(agent.policy.actor),
        "norm/critic": _norm(agent.critics),
    }
    numbers = {name: float(value) for name, value in found.items()}
    by_task = zip(tasks, (totals / counts).tolist(), counts.tolist(), strict=True)
    numbers |= {f"q/{task}": value for task, value, count in by_task if count}
    return numbers | {f"alpha/{task}": a for task, a in zip(tasks, agent.alpha.tolist(), strict=True)}


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
