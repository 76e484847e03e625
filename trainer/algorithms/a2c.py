"""Advantage actor-critic: the synchronous form of Mnih et al. 2016, one step for each rollout."""

from __future__ import annotations

from torch import Tensor

from trainer.algorithms.on_policy import OnPolicy, Transitions
from trainer.algorithms.on_policy_config import A2CConfig
from trainer.algorithms.optimizers import GuardedAdam, GuardedRMSprop


class A2C(OnPolicy):
    """The learner; see `OnPolicy`."""

    _config: A2CConfig

    def _make_optimizer(self, parameters: Tensor) -> GuardedAdam | GuardedRMSprop:
        config = self._config
        rate, eps, norm = self.learning_rate, config.optimizer_eps, config.max_grad_norm
        if config.optimizer == "adam":
            return GuardedAdam([parameters], rate, eps, norm)
        return GuardedRMSprop([parameters], rate, config.rmsprop_alpha, eps, norm)

    def _loss(self, batch: Transitions) -> tuple[Tensor, dict[str, Tensor]]:
        log_density, entropies, value = self._evaluate(batch)
        policy_loss = -(self._advantage(batch) * log_density).mean()
        value_loss, entropy = (value - batch.target).square().mean(), entropies.mean()
        return self._total(policy_loss, value_loss, entropy), {
            "loss/policy": policy_loss.detach(),
            "loss/value": value_loss.detach(),
            "entropy": entropy.detach(),
        }
