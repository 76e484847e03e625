"""Advantage actor-critic: the synchronous form of Mnih et al. 2016, one step for each rollout."""

from __future__ import annotations

from torch import Tensor

from trainer.algorithms.on_policy import OnPolicy, Slopes
from trainer.algorithms.on_policy_config import A2CConfig
from trainer.algorithms.optimizers import GuardedAdam, GuardedRMSprop
from trainer.algorithms.transitions import Transitions


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
