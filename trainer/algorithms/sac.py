"""Soft actor-critic, of one task or several, in the registry of algorithms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from trainer.recipe.algorithm import Autocast, OffPolicyAlgorithm, Values
from trainer.recipe.environments import environment_of
from trainer.recipe.errors import RecipeError, check_order

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from trainer.algorithms.sac_config import SACConfig
    from trainer.algorithms.sac_group import SACGroup
    from trainer.algorithms.sac_learner import SAC
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.policy import Policy
    from trainer.replay import Batch


class SACAlgorithm(OffPolicyAlgorithm):
    """SAC of Haarnoja et al. 2018, with what McLean et al. 2025 and Nauman et al. 2025 add for many tasks."""

    name, label = "sac", "SAC"

    def check(self, recipe: str, values: Values) -> None:
        """Checks also that each task can be told, and the options of the critics."""
        super().check(recipe, values)
        tasks = len(environment_of(values).tasks(values))
        check_order(recipe, ("log_std_min", "log_std_max", values["log_std_min"], values["log_std_max"]))
        if values.get("heads") == "one-hot" and not values["one_hot"] and tasks > 1:
            raise RecipeError(
                f"recipe {recipe}: one_hot = false leaves the task unknown without multi-head networks"
            )
        if values.get("critic_network") == "residual":
            if len(set(values["critic_hidden"])) > 1:
                same = "the same width all through critic_hidden"
                raise RecipeError(f"recipe {recipe}: critic_network = residual needs {same}")
            if not values["layer_norm"]:
                raise RecipeError(f"recipe {recipe}: critic_network = residual needs layer_norm = true")
        if values.get("normalize_rewards") == "returns" and values["reward_scale"] != 1.0:
            raise RecipeError(f"recipe {recipe}: normalize_rewards = returns needs reward_scale = 1")
        if values.get("value_bins") == 1:
            raise RecipeError(f"recipe {recipe}: value_bins = 1 tells nothing; 0 is off, 101 is usual")

    def config(self, values: Values) -> SACConfig:
        """Returns the hyperparameters."""
        from trainer.algorithms.sac_config import SACConfig

        return SACConfig.from_values(values)

    def policy(
        self, values: Values, observation_dim: int, action_space: ActionSpace, num_tasks: int
    ) -> Policy:
        """Builds the policy, see `Algorithm.policy`."""
        from trainer.algorithms.sac_config import make_policy

        return make_policy(self.config(values), observation_dim, action_space.dim, num_tasks)

    def agent(
        self,
        values: Values,
        observation_dim: int,
        action_space: ActionSpace,
        num_tasks: int,
        device: torch.device,
        autocast: Autocast,
        *,
        micro_batches: int = 1,
        reward_factor: Tensor | None = None,
        average: Callable[[Sequence[Tensor]], list[Tensor]] = list,
    ) -> SAC:
        """Builds the learner, see `OffPolicyAlgorithm.agent`."""
        from trainer.algorithms.sac_learner import SAC

        return SAC(
            self.config(values),
            observation_dim,
            action_space.dim,
            num_tasks,
            device,
            autocast,
            micro_batches=micro_batches,
            reward_factor=reward_factor,
            average=average,
        )

    def group(
        self, agents: Sequence[SAC], streams: Sequence[AbstractContextManager[None]]
    ) -> SACGroup | None:
        """Joins the learners of several seeds, see `SACGroup`."""
        from trainer.algorithms.sac_group import SACGroup

        return SACGroup(agents, streams)

    def diagnose(self, agent: SAC, batch: Batch, tasks: Sequence[str]) -> dict[str, float]:
        """Examines the networks, see `trainer.algorithms.diagnostics.diagnose`."""
        from trainer.algorithms.diagnostics import diagnose

        return diagnose(agent, batch, tasks)


ENTRY = SACAlgorithm()
