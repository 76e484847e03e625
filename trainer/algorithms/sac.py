"""Multi-task soft actor-critic (Haarnoja et al. 2018, multi-task as in McLean et al. 2025).

One call of `update` is critic, actor, temperature and target step, in this order. It reads tensors and writes
parameters in place, with static shapes and nothing that depends on the host, so that it can be captured
as it is. The temporal-difference target, the log-densities and the temperatures stay in float32 whatever
the precision of the matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage, global_norm, not_finite
from trainer.algorithms.sac_config import SACConfig, make_policy
from trainer.nn.distributions import squashed_gaussian
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.residual import ResidualMLP
from trainer.nn.value import CategoricalValue, ScalarValue, Value
from trainer.replay import Batch

__all__ = ["SAC", "SACConfig", "make_policy"]

_CRITICS = 2
_CRITIC_OUTPUT_BOUND = 3e-3
"""Initial bound of the critics' output layer, from the code of McLean et al. 2025."""


class _Part(NamedTuple):
    """A part of a batch, with what the policy does in it and the policy's graph.

    Attributes:
        batch: its transitions.
        features: of the observations.
        next_features: of the next observations.
        alpha: the temperature of each row's task.
        action: drawn for the observations, differentiable.
        log_density: of these actions, differentiable.
        next_action: drawn for the next observations.
        next_log_density: of these.
    """

    batch: Batch
    features: Tensor
    next_features: Tensor
    alpha: Tensor
    action: Tensor
    log_density: Tensor
    next_action: Tensor
    next_log_density: Tensor


class SAC:
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

    Attributes:
        value: how the critics' outputs are read.
        skipped: int64 (2,) on the device: updates skipped in all, and in a row now.
        micro_batches: parts of a batch; may be changed between updates.
    """

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
    ) -> None:
        self.config = config
        self._reward_factor = reward_factor
        self._autocast = autocast
        self._target_entropy = -float(action_dim) if config.target_entropy is None else config.target_entropy
        self.micro_batches = micro_batches
        self._over_learners = average
        self.policy = make_policy(config, observation_dim, action_dim, num_tasks).to(device)
        self.value = _make_value(config, device)
        self.critics = _make_critics(
            config, self.policy.encoder.features + action_dim, self.value.outputs, num_tasks
        ).to(device)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = torch.full((num_tasks,), config.initial_alpha, device=device).log_()
        self.skipped = torch.zeros(2, dtype=torch.int64, device=device)
        self._one_hot = torch.eye(num_tasks, device=device)
        self._actor_parameters: list[Tensor] = list(self.policy.actor.parameters())
        self._critic_parameters: list[Tensor] = list(self.critics.parameters())
        eps, how = config.adam_eps, (config.adam_eps, config.max_grad_norm, config.weight_decay)
        self._optimizers = {
            "actor": GuardedAdam(self._actor_parameters, config.actor_learning_rate, *how),
            "critics": GuardedAdam(self._critic_parameters, config.critic_learning_rate, *how),
            "alpha": GuardedAdam([self.log_alpha], config.alpha_learning_rate, eps),
        }
        self._average = GuardedAverage(self.targets.parameters(), self._critic_parameters, config.tau)

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Learns from one batch.

        Returns:
            Scalars on the device, for the log: `loss/critic`, `loss/actor`, `loss/alpha`, `q/mean`,
            `entropy`, and before clipping `grad_norm/critic` and `grad_norm/actor`. Those of a skipped update
            say why it was skipped.
        """
        alpha = self.alpha  # all losses use the temperatures before this update
        parts = [self._play(*part, alpha) for part in self._split(batch)]
        size = len(batch.reward)

        log_density = _join([part.log_density.detach() for part in parts])
        surplus = log_density + self._target_entropy
        # the loss is linear in log alpha: its gradient needs no pass backward, and no scatter over the tasks
        alpha_gradient = -(self._one_hot[batch.task] * surplus[:, None]).mean(0)
        alpha_loss = (self.log_alpha * alpha_gradient).sum()

        values: list[Tensor] = []
        critic_losses = (self._critic_loss(part, values) / (_CRITICS * size) for part in parts)
        critic_loss, gradients = _accumulate(critic_losses, self._critic_parameters)
        # before anything is decided, so that all learners decide the same
        critic_loss, alpha_loss, alpha_gradient, *gradients = self._over_learners(
            [critic_loss, alpha_loss, alpha_gradient, *gradients]
        )
        critic_norm = global_norm(gradients)
        blocked = not_finite(critic_loss, critic_norm, alpha_loss)
        self._optimizers["critics"].step(gradients, critic_norm, blocked)

        actor_losses = (self._actor_loss(part) / size for part in parts)
        actor_loss, gradients = _accumulate(actor_losses, self._actor_parameters)
        q_mean, entropy = _join(values, 1).mean(), -log_density.mean()
        actor_loss, q_mean, entropy, *gradients = self._over_learners(
            [actor_loss, q_mean, entropy, *gradients]
        )
        actor_norm = global_norm(gradients)
        blocked = torch.maximum(blocked, not_finite(actor_loss, actor_norm))
        self._optimizers["actor"].step(gradients, actor_norm, blocked)
        self._optimizers["alpha"].step([alpha_gradient], alpha_gradient, blocked)
        self._average.step(blocked)
        self._count(blocked)
        return {
            "loss/critic": critic_loss,
            "loss/actor": actor_loss,
            "loss/alpha": alpha_loss,
            "q/mean": q_mean,
            "entropy": entropy,
            "grad_norm/critic": critic_norm,
            "grad_norm/actor": actor_norm,
        }

    @property
    def alpha(self) -> Tensor:
        """The temperatures, shape (num_tasks,)."""
        return self.log_alpha.exp()

    def tensors(self) -> list[Tensor]:
        """Returns all that `update` writes to; none of them is ever replaced by another."""
        state = [tensor for optimizer in self._optimizers.values() for tensor in optimizer.tensors()]
        targets: list[Tensor] = list(self.targets.parameters())
        learnt = [*self._actor_parameters, *self._critic_parameters, *targets, self.log_alpha]
        return [*(tensor.detach() for tensor in learnt), *state, self.skipped]

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that is learnt, optimisers included."""
        return {
            "policy": self.policy.state_dict(),
            "critics": self.critics.state_dict(),
            "targets": self.targets.state_dict(),
            "log_alpha": self.log_alpha.clone(),
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self._optimizers.items()},
            "skipped": self.skipped.clone(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over, in place, what `state_dict` of a learner of the same configuration returned."""
        self.policy.load_state_dict(state["policy"])
        self.critics.load_state_dict(state["critics"])
        self.targets.load_state_dict(state["targets"])
        self.log_alpha.copy_(state["log_alpha"])
        for name, optimizer in self._optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.skipped.copy_(state["skipped"])

    def _split(self, batch: Batch) -> list[tuple[Batch, Tensor]]:
        """Cuts a batch into parts, each with the noise of its actions: (2, rows, action_dim)."""
        noise = torch.randn(2, *batch.action.shape, device=batch.action.device)
        parts = zip(*(tensor.chunk(self.micro_batches) for tensor in batch.tensors), strict=True)
        noises = noise.chunk(self.micro_batches, 1)
        return [(Batch(*part), own) for part, own in zip(parts, noises, strict=True)]

    def _play(self, batch: Batch, noise: Tensor, alpha: Tensor) -> _Part:
        """Lets the policy act in the observations and the next ones, in one evaluation."""
        task = batch.task.repeat(2)
        features = self.policy.encoder(torch.cat([batch.observation, batch.next_observation]), task)
        with self._autocast():
            mean, log_std = self.policy.distribution(features, task)
        action, log_density = squashed_gaussian(mean, log_std, noise.flatten(0, 1))
        now, then = features.chunk(2)
        own, following = action.chunk(2)
        density, next_density = log_density.chunk(2)
        return _Part(
            batch, now, then, alpha[batch.task], own, density, following.detach(), next_density.detach()
        )

    @torch.no_grad()
    def _td_target(self, part: _Part) -> Tensor:
        outputs = self._outputs(self.targets, part.next_features, part.next_action, part.batch.task)
        value = self._reduced(outputs)
        value -= part.alpha * part.next_log_density
        if part.batch.goes_on is not None:
            value *= part.batch.goes_on
        reward = self.config.reward_scale * part.batch.reward
        if self._reward_factor is not None:
            reward = reward * self._reward_factor[part.batch.task]
        return reward + self.config.gamma * value

    def _critic_loss(self, part: _Part, seen: list[Tensor]) -> Tensor:
        target = self._td_target(part)
        outputs = self._outputs(self.critics, part.features, part.batch.action, part.batch.task)
        seen.append(self.value.mean(outputs.detach()))
        return self.value.loss(outputs, target)

    def _actor_loss(self, part: _Part) -> Tensor:
        # frozen: gradients for the critics' weights would cost as much again
        outputs = self._outputs(self.critics, part.features, part.action, part.batch.task, frozen=True)
        return (part.alpha * part.log_density - self._reduced(outputs)).sum()

    def _outputs(
        self, critics: EnsembleMLP, features: Tensor, action: Tensor, task: Tensor, *, frozen: bool = False
    ) -> Tensor:
        with self._autocast():
            outputs: Tensor = critics(torch.cat([features, action], -1), task, frozen=frozen)
        return outputs

    def _reduced(self, outputs: Tensor) -> Tensor:
        values = self.value.mean(outputs)
        return values.amin(0) if self.config.critic_reduction == "min" else values.mean(0)

    def _count(self, blocked: Tensor) -> None:
        skipped = blocked.to(torch.int64)
        self.skipped.add_(skipped)
        self.skipped[1].mul_(skipped)


def _make_value(config: SACConfig, device: torch.device | str) -> Value:
    if not config.value_bins:
        return ScalarValue()
    return CategoricalValue(config.value_bins, config.value_bound, config.value_smoothing, device)


def _make_critics(config: SACConfig, inputs: int, outputs: int, num_tasks: int) -> EnsembleMLP:
    sizes = _CRITICS, inputs, config.critic_hidden, outputs
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


def _join(parts: list[Tensor], dim: int = 0) -> Tensor:
    """Joins the parts of a batch; a single one is not copied."""
    return torch.cat(parts, dim) if len(parts) > 1 else parts[0]


def _accumulate(losses: Iterable[Tensor], parameters: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Sums losses and their gradients; the graph of one is gone before the next is made."""
    total: Tensor | None = None
    sums: list[Tensor] = []
    for loss in losses:
        gradients = list(torch.autograd.grad(loss, parameters))
        if total is None:
            total, sums = loss.detach(), gradients
        else:
            total = total + loss.detach()
            torch._foreach_add_(sums, gradients)
    assert total is not None
    return total, sums
