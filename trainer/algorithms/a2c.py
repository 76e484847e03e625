"""Advantage actor-critic in the registry of algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.recipe.algorithm import Values
from trainer.recipe.on_policy import OnPolicyAlgorithm

if TYPE_CHECKING:
    from trainer.algorithms.ppo_learner import A2C
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.actor_critic import ActorCritic


class A2CAlgorithm(OnPolicyAlgorithm):
    """A2C, the synchronous form of Mnih et al. 2016."""

    name, label = "a2c", "A2C"

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> ActorCritic:
        """Builds policy and values, see `Algorithm.policy`."""
        from trainer.algorithms.on_policy_config import OnPolicyConfig, make_actor_critic

        return make_actor_critic(OnPolicyConfig.from_values(values), observation_dim, action_space)

    def learner(self) -> type[A2C]:
        """Returns the class of the learner."""
        from trainer.algorithms.ppo_learner import A2C

        return A2C


ENTRY = A2CAlgorithm()
