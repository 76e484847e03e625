"""What PPO and A2C have in common: estimates over a rollout, and descending a loss under guard.

Everything reads tensors and writes in place, with static shapes and nothing that depends on the host, so
that it can be captured as it is. A learning rate and an entropy weight that change are scalars on the device.
All gradients are written out: in an update of small networks PyTorch's way to them would take a large part.

A learner may stand for several at once, with an axis of learners before all others, which is never summed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer.algorithms.on_policy_config import OnPolicyConfig
from trainer.algorithms.optimizers import GuardedAdam, GuardedRMSprop, flatten, norms, not_finite
from trainer.nn.actor_critic import ActorCritic
from trainer.nn.moments import RunningMoments
from trainer.nn.stacking import alone
from trainer.replay.rollout import (
    SCALARS,
    Packed,
    Rollout,
    Rollouts,
    Transitions,
    advantages,
    discounted_returns,
)

_EPSILON = 1e-8
"""Of the standardised advantages' deviation, as in OpenAI's baselines."""


class Slopes(NamedTuple):
    """The gradients of the losses, which are means over the rows of a batch.

    Attributes:
        by_density: of the policy's loss by the log-densities, (rows,).
        by_value: of the values' loss by the values, (rows,).
        loss: both together, a scalar that is finite if all is.
        scalars: for the log.
    """

    by_density: Tensor
    by_value: Tensor
    loss: Tensor
    scalars: dict[str, Tensor]


class OnPolicy(ABC):
    """A learner: networks, statistics and their optimiser.

    An update whose loss or gradient is not finite is skipped on the device: nothing changes.

    Args:
        config: the hyperparameters.
        policy: the networks, on their device; their parameters move into one tensor.
        envs: environments of a rollout.
        autocast: makes the context in which the networks are evaluated.
        learners: how many have an equal part of each rollout and batch; all take the same steps.
        average: returns the means of tensors over all of them; this one is alone by default.

    Attributes:
        captures_estimate: whether `estimate` can be captured.
        joins: whether it may stand for several that learn at once.
        sums: the rewards of each environment's episode so far, discounted, (envs,) on the device.
        skipped: int64 (2,) on the device: updates skipped in all, and in a row now.
        stopped: 1.0 on the device when this rollout is not to be learnt from any more; else 0.0.
        learning_rate: the present one, on the device.
    """

    captures_estimate = True
    joins = True

    def __init__(
        self,
        config: OnPolicyConfig,
        policy: ActorCritic,
        envs: int,
        autocast: Callable[[], AbstractContextManager[Any]],
        *,
        learners: int = 1,
        average: Callable[[Sequence[Tensor]], list[Tensor]] = list,
    ) -> None:
        self._config = config
        self.policy = policy
        self._autocast = autocast
        self._learners = learners
        self._over_learners = average
        self._flat = flatten([*policy.networks(), *policy.head.parameters()])
        device = self._flat.device
        self.learning_rate = torch.tensor(config.learning_rate, device=device)
        self._entropy_weight = torch.tensor(config.entropy_coefficient, device=device)
        self._reward_moments = RunningMoments(1).to(device)
        self.sums = torch.zeros(envs, device=device)
        self.skipped = torch.zeros(2, dtype=torch.int64, device=device)
        self.stopped = torch.zeros((), device=device)
        self._optimizer = self._make_optimizer(self._flat)

    @abstractmethod
    def _make_optimizer(self, parameters: Tensor) -> GuardedAdam | GuardedRMSprop:
        """Returns the optimiser of all parameters, which takes `learning_rate`."""

    @abstractmethod
    def _slopes(self, batch: Transitions, outputs: Tensor, value: Tensor) -> Slopes:
        """Returns the gradients of the losses of a batch."""

    @property
    def _kl_limit(self) -> float:
        """Which `kl` of a batch sets `stopped`; 0 for none."""
        return 0.0

    def schedule(self, left: float) -> None:
        """Sets what changes with time.

        Args:
            left: share of the training that is left, from 1 to 0.
        """
        config = self._config
        rate = left if config.learning_rate_schedule == "linear" else 1.0
        self.learning_rate.fill_(config.learning_rate * rate)
        entropy = left if config.entropy_schedule == "linear" else 1.0
        self._entropy_weight.fill_(config.entropy_coefficient * entropy)

    @torch.no_grad()
    def estimate(self, rollout: Rollout | Rollouts) -> Tensor:
        """Looks at a whole rollout, and rearms `stopped`; returns the rows of `Packed`."""
        self.stopped.zero_()
        policy, config = self.policy, self._config
        both = torch.stack([rollout.observation, rollout.next_observation], -4)
        both = policy.features(both)
        features = both.select(-4, 0)
        with self._autocast():
            value, next_value = policy.value(both).unbind(-3)
            outputs = policy.actor(features)
        advantage = advantages(
            self._scaled_reward(rollout), value, next_value, rollout.ends, config.gamma, config.gae_lambda
        )
        return self._rows(rollout, features, outputs, value, advantage)

    def pack(self, rows: Tensor) -> Packed:
        """Returns what `estimate` returned with the widths of its parts."""
        action_dim = self.policy.action_dim
        return Packed(rows, (rows.shape[-1] - action_dim - SCALARS, action_dim, *[1] * SCALARS))

    @torch.no_grad()
    def update(self, batch: Transitions) -> dict[str, Tensor]:
        """Learns from one batch, unless `stopped`.

        Returns:
            Scalars on the device, for the log: `loss/policy`, `loss/value`, `entropy`, `grad_norm` before
            clipping, and those of the algorithm. Those of a skipped update say why it was skipped.
        """
        policy, rows = self.policy, batch.value.shape[-1]
        with self._autocast():
            acted = policy.actor.trace(batch.features)
            valued = [] if policy.critic is None else policy.critic.trace(batch.features)
        outputs = acted[-1]
        value = valued[-1].squeeze(-1) if valued else batch.value
        slopes = self._slopes(batch, outputs, value)
        by_outputs, by_log_std = policy.head.slope(
            outputs, batch.action, slopes.by_density, -self._entropy_weight / rows
        )
        parts = policy.actor.slopes(acted, by_outputs)
        if policy.critic is not None:
            by_value = (slopes.by_value * self._config.value_coefficient).unsqueeze(-1)
            parts += policy.critic.slopes(valued, by_value)
        if by_log_std is not None:
            parts.append(by_log_std)
        gradient = torch.cat([part.flatten(self._flat.dim() - 1) for part in parts], -1)
        # before anything is decided, so that all learners decide the same
        gradient, loss, *means = self._over_learners([gradient, slopes.loss, *slopes.scalars.values()])
        scalars = dict(zip(slopes.scalars, means, strict=True))
        if limit := self._kl_limit:
            self.stopped.copy_(torch.maximum(self.stopped, scalars["kl"].gt(limit).float()))
        norm = norms(gradient)
        blocked = not_finite(loss, norm)
        self._optimizer.step([gradient], norm, torch.maximum(blocked, self.stopped))
        skipped = blocked.to(torch.int64)
        self.skipped.add_(skipped.unsqueeze(-1))
        self.skipped[..., 1].mul_(skipped)
        return {**scalars, "grad_norm": norm}

    def tensors(self) -> list[Tensor]:
        """Returns all that `estimate` and `update` write to; none of them is ever replaced by another."""
        moments = list(self._reward_moments.buffers())
        return [self._flat, *self._optimizer.tensors(), *moments, self.sums, self.skipped, self.stopped]

    def shared(self) -> list[Tensor]:
        """Returns all that those who learn together have the same."""
        observed = list(self.policy.moments.buffers()) if self.policy.moments is not None else []
        return [*(tensor for tensor in self.tensors() if tensor is not self.sums), *observed]

    def observe(self, rollout: Rollout) -> None:
        """Merges a rollout's observations into the policy's statistics, if it keeps any."""
        if self.policy.moments is not None:
            rows = rollout.observation.flatten(-3, -2)
            self.policy.moments.merge(rows, self._learners, self._over_learners)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that is learnt, optimiser and statistics included."""
        return {
            "policy": alone(self.policy.state_dict()),
            "optimizer": self._optimizer.state_dict(),
            "reward_moments": alone(self._reward_moments.state_dict()),
            "sums": self.sums.clone(),
            "skipped": self.skipped.clone(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over, in place, what `state_dict` of a learner of the same configuration returned."""
        self.policy.load_state_dict(state["policy"])
        self._optimizer.load_state_dict(state["optimizer"])
        self._reward_moments.load_state_dict(state["reward_moments"])
        self.continue_sums(state["sums"])
        self.skipped.copy_(state["skipped"])

    def _rows(
        self,
        rollout: Rollout | Rollouts,
        features: Tensor,
        outputs: Tensor,
        value: Tensor,
        advantage: Tensor,
    ) -> Tensor:
        """Returns the rows of `Packed`, from what was found of each step (steps, envs, ...)."""
        log_density, _ = self.policy.head.evaluate(outputs, rollout.action)
        scalars = torch.stack([log_density, value, advantage, value + advantage], -1)
        return torch.cat([features, rollout.action, scalars], -1).flatten(-3, -2)

    def continue_sums(self, sums: Tensor) -> None:
        """Takes over `sums`, if they are of as many environments."""
        if self.sums.shape == sums.shape:
            self.sums.copy_(sums)

    def _scaled_reward(self, rollout: Rollout | Rollouts) -> Tensor:
        if not self._config.normalize_rewards:
            return rollout.reward
        sums, before = discounted_returns(rollout.reward, self.sums, rollout.ends.done, self._config.gamma)
        self._reward_moments.merge(sums.flatten(-2).unsqueeze(-1), self._learners, self._over_learners)
        self.sums.copy_(before.nan_to_num(0.0, 0.0, 0.0))
        return self._reward_moments.scaled(rollout.reward)

    def _advantage(self, batch: Transitions) -> Tensor:
        """Returns the advantages of a batch, standardised if that is asked for."""
        advantage = batch.advantage
        rows = advantage.shape[-1] * self._learners
        if not self._config.normalize_advantages or rows == 1:
            return advantage
        if self._learners == 1:
            deviation, mean = torch.std_mean(advantage, -1, keepdim=True)
        else:
            (mean,) = self._over_learners([advantage.mean()])
            (variance,) = self._over_learners([(advantage - mean).square().mean()])
            deviation = (variance * rows / (rows - 1)).sqrt()
        return (advantage - mean) / (deviation + _EPSILON)
