"""One update of soft actor-critic (Haarnoja et al. 2018, multi-task as in McLean et al. 2025).

One call of `update` is critic, actor, temperature and target step, in this order. It reads tensors and writes
parameters in place, with static shapes and nothing that depends on the host, so that it can be captured
as it is. The temporal-difference target, the log-densities and the temperatures stay in float32 whatever
the precision of the matrix products.

The same lines compute one seed's update and that of several at once: then every tensor has the seeds as its
first dimension, and no number of one seed meets one of another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from trainer.algorithms.kernels.operations import Operations
from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage, accumulate, not_finite
from trainer.algorithms.pieces import global_norm
from trainer.algorithms.sac_config import SACConfig
from trainer.algorithms.sac_explicit import ExplicitUpdate
from trainer.nn.mlp import EnsembleMLP
from trainer.nn.policy import Policy, squashed_gaussian
from trainer.nn.value import Value
from trainer.recipe.share import evaluates_apart
from trainer.replay import Batch

CRITICS = 2


class _UpdatePart(NamedTuple):
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


class SACUpdate:
    """What an update computes; who inherits it says whose optimisers then step, and what the targets follow.

    Args:
        config: the hyperparameters.
        policy: whose actor learns.
        critics: which learn.
        targets: which follow the critics.
        log_alpha: ([seeds,] num_tasks), the logarithms of the temperatures, which learn.
        value: how the critics' outputs are read.
        skipped: int64 ([seeds,] 2): updates skipped in all, and in a row now.
        autocast: makes the context in which the networks are evaluated.
        micro_batches: parts in which a batch is computed.
        reward_factor: ([seeds,] num_tasks), what each task's rewards are multiplied by, or None.
        average: returns the means of tensors over all learners that have an equal part of each batch.
        operations: those of an update with explicit gradients, or None for autograd. An update of a batch in
            parts takes autograd whatever is given.

    Attributes:
        turns: kinds of update that take turns; one: each update is like the one before.
        optimizers: of `actor`, `critics` and `alpha`.
        polyak: moves the targets.
        operations: as given; what is captured knows nothing of a change.
    """

    turns: ClassVar[int] = 1
    optimizers: dict[str, GuardedAdam]
    polyak: GuardedAverage
    _norm: Callable[[Sequence[Tensor]], Tensor] = staticmethod(global_norm)
    """Returns the norm of all gradients together, a number ([seeds])."""

    def __init__(
        self,
        config: SACConfig,
        policy: Policy,
        critics: EnsembleMLP,
        targets: EnsembleMLP,
        log_alpha: Tensor,
        value: Value,
        skipped: Tensor,
        autocast: Callable[[], AbstractContextManager[Any]],
        micro_batches: int,
        reward_factor: Tensor | None,
        average: Callable[[Sequence[Tensor]], list[Tensor]],
        operations: Operations | None,
    ) -> None:
        self.config = config
        self.policy = policy
        self.critics = critics
        self.targets = targets
        self.log_alpha = log_alpha
        self.value = value
        self.skipped = skipped
        self.micro_batches = micro_batches
        self.reward_factor = reward_factor
        self.autocast = autocast
        self._precision = autocast()
        self._over_learners = average
        self.operations = operations
        self._explicit: ExplicitUpdate | None = None
        self._target_entropy = config.entropy_aimed_at(policy.action_dim)
        self._apart = evaluates_apart(config.actor_hidden)
        self._one_hot = torch.eye(log_alpha.shape[-1], device=log_alpha.device)
        self._actor_parameters: list[Tensor] = list(policy.actor.parameters())
        self._critic_parameters: list[Tensor] = list(critics.parameters())

    def by_task(self) -> dict[str, Tensor]:
        """Returns the temperatures, `alpha` ([seeds,] num_tasks), for the log."""
        return {"alpha": self.log_alpha.exp()}

    def schedule(self, left: float) -> None:
        """Sets what changes with time: nothing."""
        del left

    def update(self, batch: Batch, turn: int = 0) -> dict[str, Tensor]:
        """Learns from one batch.

        Args:
            batch: transitions.
            turn: 0.

        Returns:
            Numbers ([seeds]) on the device, for the log: `loss/critic`, `loss/actor`, `loss/alpha`, `q/mean`,
            `entropy`, and before clipping `grad_norm/critic` and `grad_norm/actor`. Those of a skipped update
            say why it was skipped.
        """
        del turn  # every update is like the others
        if self.operations is not None and self.micro_batches == 1:
            return self._update_explicitly(self.operations, batch)
        self._explicit = None  # whose gradients would take memory that is short
        alpha = self.alpha  # all losses use the temperatures before this update
        parts = [self._play(*part, alpha) for part in self._split(batch)]
        size = batch.reward.shape[-1]

        log_density = _join([part.log_density.detach() for part in parts])
        surplus = log_density + self._target_entropy
        alpha_loss, alpha_gradient = self._alpha_loss(batch.task, surplus)

        values: list[Tensor] = []
        loss_of = partial(self._critic_loss, seen=values)
        critic_loss, gradients = accumulate(loss_of, parts, CRITICS * size, self._critic_parameters)
        # before anything is decided, so that all learners decide the same
        critic_loss, alpha_loss, alpha_gradient, *gradients = self._over_learners(
            [critic_loss, alpha_loss, alpha_gradient, *gradients]
        )
        critic_norm = self._norm(gradients)
        blocked = not_finite(critic_loss, critic_norm, alpha_loss)
        self.optimizers["critics"].step(gradients, critic_norm, blocked)

        actor_loss, gradients = accumulate(self._actor_loss, parts, size, self._actor_parameters)
        q_mean, entropy = _join(values).mean((-2, -1)), -log_density.mean(-1)
        actor_loss, q_mean, entropy, *gradients = self._over_learners(
            [actor_loss, q_mean, entropy, *gradients]
        )
        actor_norm = self._norm(gradients)
        blocked = torch.maximum(blocked, not_finite(actor_loss, actor_norm))
        self.optimizers["actor"].step(gradients, actor_norm, blocked)
        self.optimizers["alpha"].step([alpha_gradient], blocked, blocked)  # not clipped: asks for no norm
        self.polyak.step(blocked)
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

    def _update_explicitly(self, operations: Operations, batch: Batch) -> dict[str, Tensor]:
        """Does the same with explicit gradients."""
        if self._explicit is None:
            self._explicit = ExplicitUpdate(
                operations,
                self.policy,
                self.critics,
                self.targets,
                self.log_alpha,
                self.skipped,
                self.reward_factor,
                self.optimizers,
                self.polyak,
                self._norm,
            )
        noise = self._noise(batch.action)
        if self.log_alpha.dim() > 1:
            return self._explicit.update(batch, noise)
        numbers = self._explicit.update(Batch(*(tensor[None] for tensor in batch.tensors)), noise[None])
        return {name: number[0] for name, number in numbers.items()}

    @property
    def alpha(self) -> Tensor:
        """The temperatures, shape ([seeds,] num_tasks)."""
        return self.log_alpha.exp()

    def _noise(self, action: Tensor) -> Tensor:
        """Draws standard normal numbers for actions ([seeds,] batch, dim): ([seeds,] 2, batch, dim)."""
        return torch.randn(2, *action.shape, device=action.device)

    def _split(self, batch: Batch) -> list[tuple[Batch, Tensor]]:
        """Cuts a batch into parts, each with the noise of its actions: ([seeds,] 2, rows, action_dim)."""
        if self.micro_batches == 1:
            return [(batch, self._noise(batch.action))]
        rows = batch.task.dim() - 1
        parts = zip(*(tensor.chunk(self.micro_batches, rows) for tensor in batch.tensors), strict=True)
        noises = self._noise(batch.action).chunk(self.micro_batches, -2)
        return [(Batch(*part), own) for part, own in zip(parts, noises, strict=True)]

    def _play(self, batch: Batch, noise: Tensor, alpha: Tensor) -> _UpdatePart:
        """Lets the policy act in the observations, where it learns, and in the next ones, where it does not.

        In one evaluation, which takes fewer operations, or in two, see `evaluates_apart`.
        """
        if self._apart:
            own_noise, next_noise = noise.unbind(-3)
            with torch.no_grad():
                then, following, next_density = self._act(batch.next_observation, batch.task, next_noise)
            now, own, density = self._act(batch.observation, batch.task, own_noise)
        else:
            task = torch.cat([batch.task, batch.task], -1)
            observations = torch.cat([batch.observation, batch.next_observation], -2)
            features, action, log_density = self._act(observations, task, noise.flatten(-3, -2))
            now, then = features.chunk(2, -2)
            own, following = action.chunk(2, -2)
            density, next_density = log_density.chunk(2, -1)
        return _UpdatePart(
            batch,
            now,
            then,
            alpha.gather(-1, batch.task),
            own,
            density,
            following.detach(),
            next_density.detach(),
        )

    def _act(self, observation: Tensor, task: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the features of observations, and the actions drawn there with their log-densities."""
        features = self.policy.encoder(observation, task)
        with self._precision:
            mean, log_std = self.policy.distribution(features, task)
        return features, *squashed_gaussian(mean, log_std, noise)

    @torch.no_grad()
    def _td_target(self, part: _UpdatePart) -> Tensor:
        outputs = self._outputs(self.targets, part.next_features, part.next_action, part.batch.task)
        value = self._reduced(outputs)
        value -= part.alpha * part.next_log_density
        if part.batch.goes_on is not None:
            value *= part.batch.goes_on
        reward = self.config.reward_scale * part.batch.reward
        if self.reward_factor is not None:
            reward = reward * self.reward_factor.gather(-1, part.batch.task)
        return reward + self.config.gamma * value

    def _critic_loss(self, part: _UpdatePart, seen: list[Tensor]) -> Tensor:
        target = self._td_target(part)
        outputs = self._outputs(self.critics, part.features, part.batch.action, part.batch.task)
        seen.append(self.value.mean(outputs.detach()))
        return self.value.loss(outputs, target)

    def _actor_loss(self, part: _UpdatePart) -> Tensor:
        # frozen: gradients for the critics' weights would cost as much again
        outputs = self._outputs(self.critics, part.features, part.action, part.batch.task, frozen=True)
        return (part.alpha * part.log_density - self._reduced(outputs)).sum(-1)

    def _outputs(
        self, critics: EnsembleMLP, features: Tensor, action: Tensor, task: Tensor, *, frozen: bool = False
    ) -> Tensor:
        with self._precision:
            outputs: Tensor = critics(torch.cat([features, action], -1), task, frozen=frozen)
        return outputs

    def _reduced(self, outputs: Tensor) -> Tensor:
        values = self.value.mean(outputs)
        return values.amin(-2) if self.config.critic_reduction == "min" else values.mean(-2)

    def _alpha_loss(self, task: Tensor, surplus: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the temperatures' loss ([seeds]), and its gradient by `log_alpha`, without a pass backward.

        A temperature that is shared is held once a task: equal ones with equal gradients stay equal.
        """
        if self.config.temperature == "shared":  # linear in alpha
            slope = -surplus.mean(-1)
            gradient = self.log_alpha.exp() * slope[..., None]
            return gradient[..., 0], gradient
        gradient = -(self._one_hot[task] * surplus[..., None]).mean(-2)  # linear in log alpha
        return (self.log_alpha * gradient).sum(-1), gradient

    def _count(self, blocked: Tensor) -> None:
        skipped = blocked.to(torch.int64)
        self.skipped.add_(skipped[..., None])
        self.skipped[..., 1].mul_(skipped)


def _join(parts: list[Tensor]) -> Tensor:
    """Joins the parts of a batch, (..., rows) each; a single one is not copied."""
    return torch.cat(parts, -1) if len(parts) > 1 else parts[0]
