"""Multi-task soft actor-critic of one seed, and of several seeds that learn in one update.

Products and everything else that an update is made of are computed for all seeds at once: on a GPU, where
small networks cost their number of operations and not their arithmetic, the update of several costs little
more than that of one. Each seed keeps its own agent, whose tensors lie within those of the group meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from trainer.algorithms.kernels.operations import Operations
from trainer.algorithms.off_policy import StoredLearner
from trainer.algorithms.optimizers import AdamOfEach, AverageOfEach, GuardedAdam, GuardedAverage
from trainer.algorithms.pieces import global_norm_of_each
from trainer.algorithms.sac_config import SACConfig, make_policy
from trainer.algorithms.sac_explicit import operations_for
from trainer.algorithms.sac_update import CRITICS, SACUpdate
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.residual import ResidualMLP
from trainer.nn.stacking import part, stack, stacked
from trainer.nn.value import CategoricalValue, ScalarValue, Value

_CRITIC_OUTPUT_BOUND = 3e-3
"""Initial bound of the critics' output layer, from the code of McLean et al. 2025."""
_SHARED_BETA1 = 0.5
"""Adam's decay of the first moment of a temperature that all tasks share, from the code of BRC."""


class SAC(SACUpdate, StoredLearner):
    """The learner: networks, targets, temperatures and their optimisers.

    An update whose loss or gradient is not finite is skipped on the device: no parameter, optimiser state,
    target or temperature changes. One corner is left: should only the actor's gradient overflow, at critics
    that are finite before and after their step, then the critics keep that step.

    Args:
        config: the hyperparameters.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action, each in [-1, 1].
        num_tasks: tasks.
        device: where everything lies.
        autocast: makes the context in which the networks are evaluated; full precision by default.
        micro_batches: parts in which a batch is computed, to save memory; what is learnt stays the same.
        reward_factor: (num_tasks,) on the device, what each task's rewards are multiplied by; read anew by
            every update. None for 1.
        average: returns the means of tensors over all learners that have an equal part of each batch; this
            one is alone by default. Each then takes the same step.
        operations: see `SACUpdate`; by default what `operations_for` chooses.

    Attributes:
        value: how the critics' outputs are read.
        skipped: int64 (2,) on the device: updates skipped in all, and in a row now.
        micro_batches: parts of a batch; may be changed between updates.
        joins: whether learners of several seeds can be joined, see `SACGroup`.
        remark: see `StoredLearner`.
    """

    configuration = SACConfig

    joins = True

    def __init__(
        self,
        config: SACConfig,
        observation_dim: int,
        action_dim: int,
        num_tasks: int,
        device: torch.device | str = "cpu",
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        *,
        micro_batches: int = 1,
        reward_factor: Tensor | None = None,
        average: Callable[[Sequence[Tensor]], list[Tensor]] = list,
        operations: Operations | None = None,
    ) -> None:
        policy = make_policy(config, observation_dim, action_dim, num_tasks).to(device)
        value = _make_value(config, device)
        inputs = policy.encoder.features + action_dim
        critics = _make_critics(config, inputs, value.outputs, num_tasks).to(device)
        super().__init__(
            config,
            policy,
            critics,
            deepcopy(critics).requires_grad_(False),
            torch.full((num_tasks,), config.initial_alpha, device=device).log_(),
            value,
            torch.zeros(2, dtype=torch.int64, device=device),
            autocast,
            micro_batches,
            reward_factor,
            average,
            operations,
        )
        if operations is None and average is list and isinstance(self._precision, nullcontext):
            self.operations, self.remark = operations_for(config, action_dim, self.log_alpha.device)
        eps, how = config.adam_eps, (config.adam_eps, config.max_grad_norm, config.weight_decay)
        momentum = {"beta1": _SHARED_BETA1} if config.temperature == "shared" else {}
        self.optimizers = {
            "actor": GuardedAdam(self._actor_parameters, config.actor_learning_rate, *how),
            "critics": GuardedAdam(self._critic_parameters, config.critic_learning_rate, *how),
            "alpha": GuardedAdam([self.log_alpha], config.alpha_learning_rate, eps, **momentum),
        }
        self.polyak = GuardedAverage(self.targets.parameters(), self._critic_parameters, config.tau)
        self._networks = {"policy": policy, "critics": critics, "targets": self.targets}
        self._notes = {"log_alpha": self.log_alpha, "skipped": self.skipped}

    def moved(self) -> None:
        """Takes note that its tensors lie elsewhere now."""
        self.polyak.aim()
        self._explicit = None

    def leave(self) -> None:
        """Moves its tensors, views of those of a `SACGroup`, into memory of their own."""
        modules = self.policy, self.critics, self.targets
        part([tensor for module in modules for tensor in (*module.parameters(), *module.buffers())])
        part([self.log_alpha, self.skipped])
        if self.reward_factor is not None:
            part([self.reward_factor])
        self.moved()


def _make_value(config: SACConfig, device: torch.device | str) -> Value:
    if not config.value_bins:
        return ScalarValue()
    return CategoricalValue(config.value_bins, config.value_bound, config.value_smoothing, device)


def _make_critics(config: SACConfig, inputs: int, outputs: int, num_tasks: int) -> EnsembleMLP:
    sizes = CRITICS, inputs, config.critic_hidden, outputs
    heads = num_tasks if config.heads == "multi-head" else 1
    if config.critic_network == "residual":
        return ResidualMLP(*sizes, heads=heads, init=config.init, output_bound=_CRITIC_OUTPUT_BOUND)
    return EnsembleMLP(
        *sizes,
        heads=heads,
        layer_norm=config.layer_norm,
        init=config.init,
        output_bound=_CRITIC_OUTPUT_BOUND,
    )


class SACGroup(SACUpdate):
    """The update of several seeds. What one seed's numbers are never touches another's, also if not finite.

    Until `leave`, the tensors of the agents are parts of this group's. They are of use as before, but whoever
    holds an address of them has to look again.

    Args:
        agents: one per seed, of one configuration, on one device.
        streams: within which the default generators are each seed's own.
    """

    def __init__(self, agents: Sequence[SAC], streams: Sequence[AbstractContextManager[None]]) -> None:
        first = agents[0]
        factors = [agent.reward_factor for agent in agents if agent.reward_factor is not None]
        super().__init__(
            first.config,
            stacked([agent.policy for agent in agents]),
            stacked([agent.critics for agent in agents]),
            stacked([agent.targets for agent in agents]),
            stack([agent.log_alpha for agent in agents], dense=True),
            first.value,
            stack([agent.skipped for agent in agents], dense=True),
            first.autocast,
            first.micro_batches,
            stack(factors, dense=True) if factors else None,
            list,
            first.operations,
        )
        self._agents = agents
        self._streams = streams
        self.optimizers = {
            name: AdamOfEach([agent.optimizers[name] for agent in agents]) for name in first.optimizers
        }
        self.polyak = AverageOfEach([agent.polyak for agent in agents])
        for agent in agents:
            agent.moved()

    def tensors(self) -> list[Tensor]:
        """Returns all that `update` writes to."""
        return [tensor for agent in self._agents for tensor in agent.tensors()]

    def leave(self) -> None:
        """Lets every agent go, with tensors of its own. The group is of no use afterwards."""
        for agent in self._agents:
            agent.leave()

    def _noise(self, action: Tensor) -> Tensor:
        noise = action.new_empty(len(action), 2, *action.shape[1:], dtype=torch.float32)
        for own, stream in zip(noise.unbind(), self._streams, strict=True):
            with stream:
                own.normal_()
        return noise

    def _norm(self, gradients: Sequence[Tensor]) -> Tensor:
        return global_norm_of_each(gradients, len(self._agents))
