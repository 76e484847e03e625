"""Proximal policy optimisation of several tasks: what the entry of PPO is on the tasks of Meta-World."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainer.recipe.algorithm import OnPolicyAlgorithm, Values
from trainer.recipe.errors import check_order

if TYPE_CHECKING:
    from trainer.algorithms.multi_task_ppo_learner import MultiTaskPPO
    from trainer.algorithms.on_policy_config import MultiTaskPPOConfig
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.task_actor import TaskActor


class MultiTaskPPOAlgorithm(OnPolicyAlgorithm):
    """MTPPO of McLean et al. 2025: a policy alone, and a linear fit in the place of a network of values."""

    name, label = "ppo", "PPO"

    def check(self, recipe: str, values: Values) -> None:
        """Checks also that the bounds of the deviation are in order."""
        super().check(recipe, values)
        check_order(recipe, ("log_std_min", "log_std_max", values["log_std_min"], values["log_std_max"]))

    def config(self, values: Values) -> MultiTaskPPOConfig:
        """Returns the hyperparameters."""
        from trainer.algorithms.on_policy_config import MultiTaskPPOConfig

        return MultiTaskPPOConfig.from_values(values)

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> TaskActor:
        """Builds the policy, see `Algorithm.policy`."""
        from trainer.algorithms.on_policy_config import make_task_actor

        return make_task_actor(self.config(values), observation_dim, action_space.dim, num_tasks)

    def learner(self) -> type[MultiTaskPPO]:
        """Returns the class of the learner."""
        from trainer.algorithms.multi_task_ppo_learner import MultiTaskPPO

        return MultiTaskPPO
