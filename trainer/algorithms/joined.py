"""One on-policy learner made of several, of which each goes on as it was: its tensors become views.

So a learner still acts, is saved and put back by itself, and could learn by itself again at any time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

from torch import Tensor

from trainer.algorithms.on_policy import OnPolicy
from trainer.algorithms.optimizers import AdamOfEach, GuardedAdam, GuardedRMSprop
from trainer.nn.moments import RunningMoments
from trainer.nn.stacking import place, stack


def joinable(agents: Sequence[OnPolicy]) -> bool:
    """Returns whether learners can be joined: of one configuration and shape, and none with others' ranks."""
    first = agents[0]
    return all(
        type(agent) is type(first)
        and agent.joins
        and agent._config == first._config
        and agent._flat.shape == first._flat.shape
        and agent.sums.shape == first.sums.shape
        and agent._learners == 1
        for agent in agents
    )


def join(agents: Sequence[OnPolicy]) -> OnPolicy:
    """Returns a learner that learns what all of these do, each from its own rollouts and batches.

    Everything it is given and returns has an axis of learners before all others. The parameters and states of
    the learners move; what has been captured of them is void.

    Args:
        agents: that are `joinable`.
    """
    whole = copy.copy(agents[0])
    each = [agent._flat for agent in agents]
    whole._flat = stack(each)
    for agent, flat in zip(agents, each, strict=True):
        place(_parameters(agent), flat)
    whole.policy = copy.deepcopy(agents[0].policy).requires_grad_(False)
    place(_parameters(whole), whole._flat)
    if whole.policy.moments is not None:
        seen = [agent.policy.moments for agent in agents]
        whole.policy.moments = _joined_moments([moments for moments in seen if moments is not None])
    whole._reward_moments = _joined_moments([agent._reward_moments for agent in agents])
    for name in ("learning_rate", "_entropy_weight", "sums", "skipped", "stopped"):
        setattr(whole, name, stack([getattr(agent, name) for agent in agents]))
    whole._optimizer = _joined_optimizer(whole, [agent._optimizer for agent in agents])
    return whole


def _parameters(agent: OnPolicy) -> list[Tensor]:
    return [*agent.policy.networks(), *agent.policy.head.parameters()]


def _joined_moments(each: Sequence[RunningMoments]) -> RunningMoments:
    whole = copy.deepcopy(each[0])
    for name, buffer in whole.named_buffers():
        buffer.data = stack([moments.get_buffer(name) for moments in each])
    return whole


def _joined_optimizer(
    whole: OnPolicy, each: Sequence[GuardedAdam | GuardedRMSprop]
) -> GuardedAdam | GuardedRMSprop:
    first = each[0]
    if isinstance(first, GuardedAdam):
        return AdamOfEach([optimizer for optimizer in each if isinstance(optimizer, GuardedAdam)])
    joined = copy.copy(first)
    joined._parameters = [whole._flat]
    joined._learning_rate = whole.learning_rate
    joined._squares = [stack([optimizer.tensors()[0] for optimizer in each])]
    return joined
