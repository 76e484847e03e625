"""Proximal policy optimisation of several tasks: what the entry of PPO is on the tasks of Meta-World."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from trainer.recipe.algorithm import Values
from trainer.recipe.environments import METAWORLD
from trainer.recipe.on_policy import OnPolicyAlgorithm, rollout_bytes, row, transitions
from trainer.recipe.share import DOUBLE, FLOAT, LONG, ParameterCount, Part, Share, dense
from trainer.recipe.spaces import Spaces

if TYPE_CHECKING:
    from trainer.algorithms.multi_task_ppo_learner import MultiTaskPPO
    from trainer.envs.spaces import ActionSpace
    from trainer.nn.actor_critic import TaskActor


class MultiTaskPPOAlgorithm(OnPolicyAlgorithm):
    """MTPPO of McLean et al. 2025: a policy alone, and a linear fit in the place of a network of values."""

    name, label = "ppo", "PPO"
    envs = 1

    def inputs(self, values: Values, spaces: Spaces) -> int:
        """Counts the observation and the one-hot task id."""
        return spaces.observation + len(METAWORLD.tasks(values))

    def count(self, values: Values, spaces: Spaces) -> ParameterCount:
        """Counts the policy, which gives means and deviations."""
        return ParameterCount(dense(self.inputs(values, spaces), values["hidden"], 2 * spaces.action))

    def memory(self, share: Share, micro_batches: int) -> list[Part]:
        """Returns what learns, and a rollout: all Adam holds is one tensor, and a count."""
        networks = share.count.trained * FLOAT
        rows = transitions(share) * row(share) * FLOAT + share.batch * LONG  # and which are the next batch
        steps = f"{share.cuts.steps} steps of each environment"
        return [
            Part("networks", networks, note="the policy"),
            Part("optimiser", 2 * networks + FLOAT),
            Part("gradients", networks),
            Part("rollout", rollout_bytes(share), note=steps),
            Part("rows", rows, note="the rollout, as it is learnt from"),
            Part("update", work_bytes(share), False, "the whole rollout looked at, or one update"),
        ]

    def graphs(self, share: Share) -> int:
        """Counts the update alone: a solver makes the estimates."""
        return 1

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


def work_bytes(share: Share) -> int:
    """About what is in use at the peak: when a whole rollout is looked at, or in an update.

    Of a whole rollout a layer's inputs and results are kept at a time, or what the fit takes in float64; of a
    batch all layers, and the slopes on both sides of one. A measurement, tests/trainer/test_memory.py, agrees
    within a tenth.
    """
    hidden, observation, inputs = share.values["hidden"], share.spaces.observation, share.inputs
    layer = max(before + after for before, after in pairwise((inputs, *hidden)))
    fit = 2 * (2 * observation + 4) + observation
    looked_at: int = transitions(share) * max(layer * FLOAT, fit * DOUBLE)
    outputs = 2 * share.spaces.action
    kept = 6 * outputs + sum(hidden) + 2 * max(hidden) + (inputs if share.cuts.count > 1 else 0)
    update: int = share.batch * kept * FLOAT + share.count.trained * FLOAT
    return max(looked_at, update)
