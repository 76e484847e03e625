"""One on-policy learner made of several, of which each goes on as it was: its tensors become views.

So a learner still acts, is saved and put back by itself, and could learn by itself again at any time.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.algorithms.on_policy import OnPolicy
from trainer.algorithms.optimizers import GuardedAdam, GuardedRMSprop
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
        adams = [optimizer for optimizer in each if isinstance(optimizer, GuardedAdam)]
        return AdamOfEach(adams, whole.learning_rate)
    joined = copy.copy(first)
    joined._parameters = [whole._flat]
    joined._learning_rate = whole.learning_rate
    joined._squares = [stack([optimizer.tensors()[0] for optimizer in each])]
    return joined


class AdamOfEach(GuardedAdam):
    """The Adams of several learners, each with one parameter; arguments have an axis of learners.

    Fused Adam has one flag, one scale and one learning rate for all that it is given, so that each learner
    needs a call of its own. All around these calls is done once: it is what `torch.optim.Adam` does.

    Args:
        each: the Adams, whose states they stay.
        rates: their learning rates, (learners,).
    """

    def __init__(self, each: Sequence[GuardedAdam], rates: Tensor) -> None:
        self._each = each
        self._max_norm = each[0]._max_norm
        self._rates = rates.unbind()
        (group,) = each[0]._adam.param_groups
        (beta1, beta2), eps = group["betas"], group["eps"]
        self._how = {"beta1": beta1, "beta2": beta2, "eps": eps, "amsgrad": False, "maximize": False}
        states = [adam._adam.state[adam._parameters[0]] for adam in each]
        # parameter, first and second moment, counter
        names = ("exp_avg", "exp_avg_sq", "step")
        self._parts = [
            (adam._parameters[0], *(state[name] for name in names))
            for adam, state in zip(each, states, strict=True)
        ]
        self._counters = [state["step"] for state in states]

    def step(self, gradients: Sequence[Tensor], norm: Tensor, blocked: Tensor) -> None:
        """Takes the step of each, or leaves its parameters and state as they are."""
        scale = (norm / self._max_norm).clamp_min(1.0) if self._max_norm > 0 else torch.ones_like(norm)
        flags = blocked.unbind()
        torch._foreach_add_(self._counters, 1.0)
        for (parameter, first, second, counter), gradient, rate, divisor, flag in zip(
            self._parts, gradients[0].unbind(), self._rates, scale.unbind(), flags, strict=True
        ):
            torch._fused_adam_(
                [parameter],
                [gradient],
                [first],
                [second],
                [],
                [counter],
                lr=rate,
                weight_decay=0.0,
                grad_scale=divisor,
                found_inf=flag,
                **self._how,
            )
        torch._foreach_sub_(self._counters, flags)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors of all states."""
        return [tensor for adam in self._each for tensor in adam.tensors()]
