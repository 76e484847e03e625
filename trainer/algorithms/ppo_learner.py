"""The learners of PPO (Schulman et al. 2017, the clipped objective) and of A2C.

A2C is the synchronous form of Mnih et al. 2016, one step for each rollout.
"""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.algorithms.on_policy import OnPolicy, Slopes
from trainer.algorithms.on_policy_config import A2CConfig, PPOConfig
from trainer.algorithms.optimizers import GuardedAdam, GuardedRMSprop
from trainer.replay.rollout import Transitions

_PATIENCE = 1.5
"""Times `target_kl` that the policy may move, as in OpenAI's Spinning Up."""


class PPO(OnPolicy):
    """The learner; see `OnPolicy`."""

    configuration: type[PPOConfig] = PPOConfig
    _config: PPOConfig

    def _make_optimizer(self, parameters: Tensor) -> GuardedAdam:
        config = self._config
        return GuardedAdam([parameters], self.learning_rate, config.adam_eps, config.max_grad_norm)

    def _slopes(self, batch: Transitions, outputs: Tensor, value: Tensor) -> Slopes:
        config, rows = self._config, value.shape[-1]
        log_density, entropies = self.policy.head.evaluate(outputs, batch.action)
        advantage = self._advantage(batch)
        moved = log_density - batch.log_density
        ratio = moved.exp()
        kept = ratio.clamp(1.0 - config.clip_range, 1.0 + config.clip_range)
        gain, kept_gain = advantage * ratio, advantage * kept
        policy_loss = -torch.minimum(gain, kept_gain).mean(-1)
        # the lesser of both has a slope only where it is not the one that is cut
        by_density = torch.where(gain <= kept_gain, gain, 0.0) / -rows
        value_loss, by_value = self._value_slope(batch, value)
        # Schulman's estimator: never negative, with little variance (joschu.net/blog/kl-approx.html)
        kl = (ratio - 1.0 - moved).mean(-1)
        scalars = {
            "loss/policy": policy_loss,
            "loss/value": value_loss,
            "entropy": entropies.mean(-1),
            "kl": kl,
            "clip_fraction": (ratio != kept).float().mean(-1),
        }
        return Slopes(by_density, by_value, policy_loss + value_loss, scalars)

    @property
    def _kl_limit(self) -> float:
        return _PATIENCE * self._config.target_kl

    def _value_slope(self, batch: Transitions, value: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the loss of the values and its gradient."""
        error = value - batch.target
        slope = error * (2.0 / error.shape[-1])
        if not (limit := self._config.value_clip_range):
            return error.square().mean(-1), slope
        moved = value - batch.value
        near = batch.value + moved.clamp(-limit, limit) - batch.target
        # the greater of both counts; where that is the one that is cut, nothing moves it
        # within the limit both are the same but for rounding
        free = (moved.abs() <= limit) | (error.square() >= near.square())
        return torch.where(free, error, near).square().mean(-1), torch.where(free, slope, 0.0)


class A2C(OnPolicy):
    """The learner; see `OnPolicy`."""

    configuration = A2CConfig
    _config: A2CConfig

    def _make_optimizer(self, parameters: Tensor) -> GuardedAdam | GuardedRMSprop:
        config = self._config
        rate, eps, norm = self.learning_rate, config.optimizer_eps, config.max_grad_norm
        if config.optimizer == "adam":
            return GuardedAdam([parameters], rate, eps, norm)
        return GuardedRMSprop([parameters], rate, config.rmsprop_alpha, eps, norm)

    def _slopes(self, batch: Transitions, outputs: Tensor, value: Tensor) -> Slopes:
        log_density, entropies = self.policy.head.evaluate(outputs, batch.action)
        advantage, error = self._advantage(batch), value - batch.target
        policy_loss, value_loss = -(advantage * log_density).mean(-1), error.square().mean(-1)
        scalars = {"loss/policy": policy_loss, "loss/value": value_loss, "entropy": entropies.mean(-1)}
        rows = value.shape[-1]
        return Slopes(advantage / -rows, error * (2.0 / rows), policy_loss + value_loss, scalars)
