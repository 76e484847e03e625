"""Proximal policy optimisation on one environment, in the registry of algorithms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.algorithms.multi_task_ppo import MultiTaskPPOAlgorithm
from trainer.recipe.algorithm import Algorithm, Values
from trainer.recipe.environments import METAWORLD, EnvironmentKind
from trainer.recipe.on_policy import OnPolicyAlgorithm

if TYPE_CHECKING:
    from trainer.algorithms.ppo_learner import PPO
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.actor_critic import ActorCritic


class PPOAlgorithm(OnPolicyAlgorithm):
    """PPO of Schulman et al. 2017, with the clipped objective."""

    name, label = "ppo", "PPO"

    def on(self, environment: EnvironmentKind) -> Algorithm:
        """Returns multi-task PPO for the tasks of Meta-World."""
        return MultiTaskPPOAlgorithm() if environment is METAWORLD else self

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> ActorCritic:
        """Builds policy and values, see `Algorithm.policy`."""
        from trainer.algorithms.on_policy_config import OnPolicyConfig, make_actor_critic

        return make_actor_critic(OnPolicyConfig.from_values(values), observation_dim, action_space)

    def learner(self) -> type[PPO]:
        """Returns the class of the learner."""
        from trainer.algorithms.ppo_learner import PPO

        return PPO


ENTRY = PPOAlgorithm()
