"""The learner of TD3 (Fujimoto et al. 2018): twin critics, smoothed targets, a policy that moves less often.

Updates take turns: with a delay of d, d - 1 of them move the critics alone, and the next one also the policy
and all targets (algorithm 1). Temporal-difference targets stay in float32 whatever the precision of the
matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.algorithms.off_policy import OffPolicy
from trainer.algorithms.optimizers import GuardedAdam, GuardedAverage, accumulate, not_finite
from trainer.algorithms.pieces import global_norm
from trainer.nn.deterministic_policy import DeterministicPolicy, squashed
from trainer.nn.mlp import EnsembleMLP
from trainer.replay import Batch

CRITICS = 2
_CRITIC_OUTPUT_BOUND = 3e-3
"""Initial bound of the critics' output layer, as in SAC."""


@dataclass(frozen=True)
class TD3Config:
    """The hyperparameters of the networks and of the update; names and values are those of a recipe.

    Attributes:
        actor_hidden: widths of the actor's hidden layers.
        critic_hidden: widths of each critic's hidden layers.
        layer_norm: normalise the critics' hidden layers.
        init: `he_uniform`, `fan_in_uniform`, `pytorch` or `orthogonal`, see `EnsembleMLP`.
        actor_learning_rate: Adam's, for the actor.
        critic_learning_rate: Adam's, for the critics.
        adam_eps: Adam's epsilon, for both.
        max_grad_norm: bound on the norm of the actor's and of both critics' gradients; 0 for none.
        gamma: discount.
        tau: share of the networks that enters their targets with each update of the policy.
        policy_delay: updates of the critics for each one of the policy.
        exploration_noise: standard deviation of the noise on actions that are played.
        target_noise: standard deviation of the noise on actions that the critics' targets are taken at.
        target_noise_clip: bound of that noise.
        reward_scale: factor on rewards.
        heads: `one-hot` (one output head) or `multi-head` (one per task).
        one_hot: append the task's one-hot id to the observation.
    """

    actor_hidden: tuple[int, ...]
    critic_hidden: tuple[int, ...]
    layer_norm: bool
    init: str
    actor_learning_rate: float
    critic_learning_rate: float
    adam_eps: float
    max_grad_norm: float
    gamma: float
    tau: float
    policy_delay: int
    exploration_noise: float
    target_noise: float
    target_noise_clip: float
    reward_scale: float
    heads: str = "one-hot"
    one_hot: bool = False

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> TD3Config:
        """Picks the fields out of a recipe's values."""
        # a recipe on one environment has no word for what only several tasks can differ in
        picked = {field.name: values[field.name] for field in fields(cls) if field.name in values}
        for name in ("actor_hidden", "critic_hidden"):
            picked[name] = tuple(picked[name])
        return cls(**picked)


class _CriticPart(NamedTuple):
    """A part of a batch with what its losses need.

    Attributes:
        batch: its transitions.
        features: of the observations.
        next_features: of the next observations.
        noise: standard normal, for the actions that the targets are taken at, (rows, action_dim).
    """

    batch: Batch
    features: Tensor
    next_features: Tensor
    noise: Tensor


class TD3(OffPolicy):
    """The learner.

    One corner of skipped updates is left: should only the actor's gradient not be finite, then the critics
    keep their step.

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
        policy: whose actor learns.
        critics: which learn.
        targets: which follow the critics.
        target_actor: which follows the policy's network.
    """

    configuration = TD3Config

    def __init__(
        self,
        config: TD3Config,
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
        self.turns = config.policy_delay
        self.policy = make_policy(config, observation_dim, action_dim, num_tasks).to(device)
        self.critics = _make_critics(config, self.policy.encoder.features + action_dim, num_tasks).to(device)
        self.targets = deepcopy(self.critics).requires_grad_(False)
        self.target_actor = deepcopy(self.policy.actor).requires_grad_(False)
        self._first_critic = _first(self.critics)
        self._actor_parameters: list[Tensor] = list(self.policy.actor.parameters())
        self._critic_parameters: list[Tensor] = list(self.critics.parameters())
        how = config.adam_eps, config.max_grad_norm
        optimizers = {
            "actor": GuardedAdam(self._actor_parameters, config.actor_learning_rate, *how),
            "critics": GuardedAdam(self._critic_parameters, config.critic_learning_rate, *how),
        }
        self._follow = GuardedAverage(
            [*self.targets.parameters(), *self.target_actor.parameters()],
            [*self._critic_parameters, *self._actor_parameters],
            config.tau,
        )
        # what is said of the policy between two of its updates
        self._said = torch.zeros(2, device=device)
        super().__init__(
            self.policy,
            {"critics": self.critics, "targets": self.targets, "target_actor": self.target_actor},
            optimizers,
            {"said": self._said},
            reward_scale=config.reward_scale,
            reward_factor=reward_factor,
            autocast=autocast,
            micro_batches=micro_batches,
            average=average,
        )

    def update(self, batch: Batch, turn: int = 0) -> dict[str, Tensor]:
        """Learns from one batch; at the last turn the policy and the targets move too.

        Args:
            batch: transitions.
            turn: from 0 to `policy_delay` - 1.

        Returns:
            Scalars on the device, for the log: `loss/critic`, `q/mean` and `grad_norm/critic`, before
            clipping; of the last update of the policy, `loss/actor` and `grad_norm/actor`. Those of a skipped
            update say why it was skipped.
        """
        size = len(batch.reward)
        parts = self._prepared(batch)
        values: list[Tensor] = []
        loss_of = partial(self._critic_loss, seen=values)
        loss, gradients = accumulate(loss_of, parts, size, self._critic_parameters)
        q_mean = torch.cat(values, -1).mean()
        # before anything is decided, so that all learners decide the same
        loss, q_mean, *gradients = self._over_learners([loss, q_mean, *gradients])
        norm = global_norm(gradients)
        blocked = not_finite(loss, norm)
        self.optimizers["critics"].step(gradients, norm, blocked)
        if turn == self.turns - 1:
            blocked = self._update_policy(parts, size, blocked)
        self._count(blocked, whole=turn == self.turns - 1)
        return {
            "loss/critic": loss,
            "loss/actor": self._said[0],
            "q/mean": q_mean,
            "grad_norm/critic": norm,
            "grad_norm/actor": self._said[1],
        }

    def _update_policy(self, parts: Sequence[_CriticPart], size: int, blocked: Tensor) -> Tensor:
        """Moves the policy, then the targets, unless `blocked`; returns whether any of it was held back."""
        loss, gradients = accumulate(self._actor_loss, parts, size, self._actor_parameters)
        loss, *gradients = self._over_learners([loss, *gradients])
        norm = global_norm(gradients)
        blocked = torch.maximum(blocked, not_finite(loss, norm))
        self.optimizers["actor"].step(gradients, norm, blocked)
        self._follow.step(blocked)
        torch.stack([loss, norm], out=self._said)
        return blocked

    def _noise(self, action: Tensor) -> Tensor:
        """Draws standard normal numbers of the shape of actions from their device's default generator."""
        return torch.randn_like(action)

    def _prepared(self, batch: Batch) -> list[_CriticPart]:
        """Cuts a batch into parts, each with its features and with noise."""
        noises = self._noise(batch.action).chunk(self.micro_batches)
        prepared = []
        for part, own in zip(self._parts(batch), noises, strict=True):
            seen = torch.cat([part.observation, part.next_observation])
            now, then = self.policy.encoder(seen, torch.cat([part.task, part.task])).chunk(2)
            prepared.append(_CriticPart(part, now, then, own))
        return prepared

    @torch.no_grad()
    def _target(self, part: _CriticPart) -> Tensor:
        """Returns the temporal-difference targets (rows,), by the smoothed target policy (section 5.3)."""
        config, task = self.config, part.batch.task
        noise = (config.target_noise * part.noise).clamp(-config.target_noise_clip, config.target_noise_clip)
        with self._precision:
            action = squashed(self.target_actor, part.next_features, task)
            action = (action + noise).clamp(-1.0, 1.0)
            values = self.targets(torch.cat([part.next_features, action], -1), task)
        return self._td_target(part.batch, values.squeeze(-1).amin(0), config.gamma)

    def _critic_loss(self, part: _CriticPart, seen: list[Tensor]) -> Tensor:
        """Returns the sum of both critics' squared errors; adds their values (2, rows) to `seen`."""
        target = self._target(part)
        with self._precision:
            outputs = self.critics(torch.cat([part.features, part.batch.action], -1), part.batch.task)
        values: Tensor = outputs.squeeze(-1)
        seen.append(values.detach())
        return (values - target).square().sum()

    def _actor_loss(self, part: _CriticPart) -> Tensor:
        """Returns minus the sum of the first critic's values of the policy's actions (Silver et al. 2014)."""
        task = part.batch.task
        with self._precision:
            action = squashed(self.policy.actor, part.features, task)
            values: Tensor = self._first_critic(torch.cat([part.features, action], -1), task)
        return -values.sum()


def make_policy(
    config: TD3Config, observation_dim: int, action_dim: int, num_tasks: int
) -> DeterministicPolicy:
    """Builds the policy of a configuration, with fresh weights."""
    return DeterministicPolicy(
        observation_dim,
        action_dim,
        num_tasks,
        hidden=config.actor_hidden,
        one_hot=config.one_hot,
        multi_head=config.heads == "multi-head",
        init=config.init,
        exploration_noise=config.exploration_noise,
    )


def _first(ensemble: EnsembleMLP) -> EnsembleMLP:
    """Returns the first member, as it is now and will be, with parameters that count as constants."""
    member = deepcopy(ensemble).requires_grad_(False)
    for own, whole in zip(member.parameters(), ensemble.parameters(), strict=True):
        own.data = whole.data[:1]
    return member


def _make_critics(config: TD3Config, inputs: int, num_tasks: int) -> EnsembleMLP:
    return EnsembleMLP(
        CRITICS,
        inputs,
        config.critic_hidden,
        1,
        heads=num_tasks if config.heads == "multi-head" else 1,
        layer_norm=config.layer_norm,
        init=config.init,
        output_bound=_CRITIC_OUTPUT_BOUND,
    )
