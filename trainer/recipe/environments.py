"""The kinds of environments that recipes run on, and what each tells before an environment is made.

A recipe names its environments by one of the keys `tasks` and `environment`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from trainer.lanes import LaneLayout, Ring
from trainer.recipe.errors import check_order
from trainer.recipe.spaces import ACTION_SIZE, OBSERVATION_SIZE, Spaces, known_spaces
from trainer.recipe.tables import task_names

_MIB = 2**20
WORKER_BYTES = 100 * _MIB
"""A process that steps tasks of Meta-World; this and the next ones measured on Linux."""
ENVIRONMENT_BYTES = 21 * _MIB
"""A Meta-World environment with the starts of its 50 goals."""
MODEL_BYTES = 46 * _MIB
"""What all environments of a task in a process share: the model with its meshes."""
GYMNASIUM_WORKER_BYTES = 60 * _MIB
GYMNASIUM_ENVIRONMENT_BYTES = 2 * _MIB
"""With MuJoCo, the largest of those that come with Gymnasium; nobody knows what another one takes."""
_MODELS_A_TASK = 0.8
"""Some tasks share a model: MT10 has 8, MT50 36."""


class EnvironmentKind(ABC):
    """A kind of environments.

    Attributes:
        key: the value that names the environments in a recipe.
        folder: where the schemas of its recipes are, below `recipes/schemas`.
    """

    key: ClassVar[str]
    folder: ClassVar[str]

    def check(self, recipe: str, values: Mapping[str, Any]) -> None:
        """Checks what no single value shows.

        Raises:
            RecipeError: a task is unknown, or values contradict each other.
        """
        self.tasks(values)

    @abstractmethod
    def tasks(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the full names of the tasks, in the order of their ids."""

    @abstractmethod
    def usual_envs(self, values: Mapping[str, Any], wished: int) -> int:
        """Returns the default number of environments, of which the algorithm wishes for so many."""

    @abstractmethod
    def spaces(self, values: Mapping[str, Any]) -> Spaces | None:
        """Returns the sizes of the environments; None for one that only its module knows."""

    @abstractmethod
    def replay_layout(
        self, values: Mapping[str, Any], spaces: Spaces, capacity: int, batch_size: int, num_envs: int
    ) -> LaneLayout | Ring:
        """Returns the shape of a replay that so many environments fill."""

    @abstractmethod
    def process_bytes(self, tasks: int, count: int, workers: int) -> int:
        """Returns about what environments take, the tasks dealt evenly to the processes.

        Args:
            tasks: of the recipe.
            count: environments.
            workers: processes beside the learner's; 0 steps them there.
        """


class MetaworldTasks(EnvironmentKind):
    """Tasks of Meta-World: planned episodes of one length, one size for all, large models."""

    key, folder = "tasks", "metaworld"

    def check(self, recipe: str, values: Mapping[str, Any]) -> None:
        """Checks also that evaluations have goals enough."""
        super().check(recipe, values)
        goals = values["evaluation_goals"], values["goals_per_task"]
        check_order(recipe, ("evaluation_goals", "goals_per_task", *goals))

    def tasks(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Expands the recipe's `tasks`."""
        return task_names(values["tasks"])

    def usual_envs(self, values: Mapping[str, Any], wished: int) -> int:
        """Returns one a task."""
        return len(self.tasks(values))

    def spaces(self, values: Mapping[str, Any]) -> Spaces:
        """Returns those of all tasks."""
        return Spaces(OBSERVATION_SIZE, ACTION_SIZE)

    def replay_layout(
        self, values: Mapping[str, Any], spaces: Spaces, capacity: int, batch_size: int, num_envs: int
    ) -> LaneLayout:
        """Returns rings of whole episodes, one for each environment of a task."""
        return LaneLayout(
            num_tasks=len(self.tasks(values)),
            num_envs=num_envs,
            capacity=capacity,
            batch_size=batch_size,
            episode_steps=values["episode_steps"],
            observation_dim=spaces.observation,
            action_dim=spaces.action,
        )

    def process_bytes(self, tasks: int, count: int, workers: int) -> int:
        """Counts the models in each process and the starts of each environment."""
        processes = workers or 1
        models = round(processes * min(-(-count // processes), tasks) * _MODELS_A_TASK)
        return workers * WORKER_BYTES + count * ENVIRONMENT_BYTES + models * MODEL_BYTES


class GymnasiumEnvironment(EnvironmentKind):
    """One environment of Gymnasium, which ends its episodes itself."""

    key, folder = "environment", "gymnasium"

    def tasks(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the environment as the only task."""
        return (values["environment"],)

    def usual_envs(self, values: Mapping[str, Any], wished: int) -> int:
        """Returns what the algorithm wishes for."""
        return wished

    def spaces(self, values: Mapping[str, Any]) -> Spaces | None:
        """Returns those in the table of what comes with Gymnasium."""
        return known_spaces().get(values["environment"])

    def replay_layout(
        self, values: Mapping[str, Any], spaces: Spaces, capacity: int, batch_size: int, num_envs: int
    ) -> Ring:
        """Returns one ring of whole transitions."""
        return Ring(capacity, batch_size, spaces.observation, spaces.action)

    def process_bytes(self, tasks: int, count: int, workers: int) -> int:
        """Counts the processes and the environments."""
        return workers * GYMNASIUM_WORKER_BYTES + count * GYMNASIUM_ENVIRONMENT_BYTES


METAWORLD, GYMNASIUM = MetaworldTasks(), GymnasiumEnvironment()
KINDS: tuple[EnvironmentKind, ...] = (METAWORLD, GYMNASIUM)


def environment_of(values: Mapping[str, Any]) -> EnvironmentKind:
    """Returns the kind of environments that a recipe with these values runs on."""
    return GYMNASIUM if GYMNASIUM.key in values else METAWORLD
