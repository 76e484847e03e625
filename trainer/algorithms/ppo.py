"""Proximal policy optimisation (Schulman et al. 2017, the clipped objective)."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.algorithms.on_policy import OnPolicy, Transitions
from trainer.algorithms.on_policy_config import PPOConfig
from trainer.algorithms.optimizers import GuardedAdam

_PATIENCE = 1.5
"""Times `target_kl` that the policy may move, as in OpenAI's Spinning Up."""


class PPO(OnPolicy):
    """The learner; see `OnPolicy`."""

    _config: PPOConfig

    def _make_optimizer(self, parameters: Tensor) -> GuardedAdam:
        config = self._config
        return GuardedAdam([parameters], self.learning_rate, config.adam_eps, config.max_grad_norm)

    def _loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        config = self._config
        log_density, entropies, value = self._evaluate(batch)
        advantage = self._advantage(batch)
        moved = log_density - batch.log_density
        ratio = moved.exp()
        kept = ratio.clamp(1.0 - config.clip_range, 1.0 + config.clip_range)
        policy_loss = -torch.minimum(advantage * ratio, advantage * kept).mean()
        value_loss, entropy = self._value_loss(batch, value), entropies.mean()
        with torch.no_grad():
            # Schulman's estimator: never negative, with little variance (joschu.net/blog/kl-approx.html)
            kl = (ratio - 1.0 - moved).mean()
            clipped = (ratio - kept).ne(0.0).float().mean()
            if config.target_kl > 0:
                self.stopped.copy_(torch.maximum(self.stopped, kl.gt(_PATIENCE * config.target_kl).float()))
        return self._total(policy_loss, value_loss, entropy), {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "entropy": entropy.detach(),
            "kl": kl,
            "clip_fraction": clipped,
        }

    def _value_loss(self, batch: Transitions, value: Tensor) -> Tensor:
        error = (value - batch.target).square()
        if not (limit := self._config.value_clip_range):
            return error.mean()
        near = batch.value + (value - batch.value).clamp(-limit, limit)
        return torch.maximum(error, (near - batch.target).square()).mean()
