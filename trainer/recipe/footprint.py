"""The memory that a recipe needs, by arithmetic alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.lanes import LaneLayout, Ring
from trainer.recipe.kinds import on_metaworld
from trainer.recipe.recipe import Recipe
from trainer.recipe.tables import task_names

OBSERVATION_SIZE = 39
ACTION_SIZE = 4
"""Meta-World's sizes: two frames of state and the goal; three axes of the hand and the gripper."""


@dataclass(frozen=True)
class ParameterCount:
    """How many numbers policy, critics, target critics (not trained) and entropy coefficients hold."""

    actor: int
    critics: int
    targets: int = 0
    alphas: int = 0

    @property
    def trained(self) -> int:
        """Parameters with a gradient and optimiser state."""
        return self.actor + self.critics + self.alphas


def parameter_count(
    recipe: Recipe,
    observation_size: int = OBSERVATION_SIZE,
    action_size: int = ACTION_SIZE,
    choices: Sequence[int] = (),
) -> ParameterCount:
    """Counts parameters by arithmetic alone.

    SAC's actor maps the observation (with the one-hot task id) to a mean and a log standard deviation per
    action, each of two critics that and the action to one value or to `value_bins`; multi-head networks have
    one last layer a task. PPO's and A2C's maps it to the means and has a log standard deviation each, or to
    the logits of all `choices`; on Meta-World's tasks PPO has a policy alone. The sizes default to
    Meta-World's; give the environment's for a recipe that runs on another.
    """
    values = recipe.values
    if recipe.algorithm != "sac" and "tasks" in values:
        inputs = observation_size + len(task_names(values["tasks"]))
        return ParameterCount(actor=_dense(inputs, values["hidden"], 2 * action_size), critics=0)
    if recipe.algorithm != "sac":
        deviations = 0 if choices else action_size
        actor = _dense(observation_size, values["hidden"], sum(choices) or action_size) + deviations
        return ParameterCount(actor=actor, critics=_dense(observation_size, values["hidden"], 1))
    tasks = heads = 1
    inputs = observation_size
    if on_metaworld(values):
        tasks = len(task_names(values["tasks"]))
        heads = tasks if values["heads"] == "multi-head" else 1
        inputs += tasks if values["one_hot"] else 0
    actor = _dense(inputs, values["actor_hidden"], 2 * action_size, heads)
    first, *further = values["critic_hidden"]
    repeats = 2 if values.get("critic_network") == "residual" else 1  # a block has two layers
    layers = [first, *(width for width in further for _ in range(repeats))]
    critics = 2 * _dense(inputs + action_size, layers, values.get("value_bins") or 1, heads)
    return ParameterCount(actor=actor, critics=critics, targets=critics, alphas=tasks)


def replay_bytes(
    recipe: Recipe,
    num_envs: int | None = None,
    observation_size: int = OBSERVATION_SIZE,
    action_size: int = ACTION_SIZE,
) -> int:
    """Returns what the replay allocates; 0 for on-policy recipes.

    Args:
        recipe: any.
        num_envs: environments that fill it, one a task by default: on Meta-World each has a lane of its own.
        observation_size: Meta-World's by default; give the environment's for a recipe that runs on another.
        action_size: the same.
    """
    values = recipe.values
    if "replay_capacity" not in values:
        return 0
    if not on_metaworld(values):
        return Ring(values["replay_capacity"], values["batch_size"], observation_size, action_size).nbytes
    return replay_layout(recipe, num_envs).nbytes


def replay_layout(recipe: Recipe, num_envs: int | None = None) -> LaneLayout:
    """Returns the shape of the replay of a recipe that runs on Meta-World."""
    values = recipe.values
    tasks = len(task_names(values["tasks"]))
    return LaneLayout(
        num_tasks=tasks,
        num_envs=num_envs or tasks,
        capacity=values["replay_capacity"],
        batch_size=values["batch_size"],
        episode_steps=values["episode_steps"],
        observation_dim=OBSERVATION_SIZE,
        action_dim=ACTION_SIZE,
    )


def _dense(inputs: int, hidden: Sequence[int], outputs: int, heads: int = 1) -> int:
    sizes = [inputs, *hidden]
    body = sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(sizes))
    return body + heads * (sizes[-1] + 1) * outputs
