"""The kinds of environments that recipes run on, and what each tells before an environment is made.

A recipe names its environments by one of the keys `tasks` and `environment`. The name of a Gymnasium
environment may end in arguments: `EnvId?name=value&name=value`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import unquote

from trainer.recipe.errors import RecipeError
from trainer.recipe.lanes import LaneLayout, Ring
from trainer.recipe.spaces import METAWORLD_SPACES, Spaces, known_spaces
from trainer.recipe.tables import task_names

_MIB = 2**20
_MODELS_A_TASK = 0.8
"""Some tasks share a model: MT10 has 8, MT50 36."""
_PYTHONS = {"True": True, "False": False, "None": None}
"""What Python writes, beside JSON's `true`, `false` and `null`."""


class EnvironmentKind(ABC):
    """A kind of environments.

    Attributes:
        key: the value that names the environments in a recipe.
        folder: where the schemas of its recipes are, below `recipes/schemas`.
        worker_bytes: memory of a process that steps environments; all three measured on Linux.
        environment_bytes: memory of an environment.
        model_bytes: memory that all environments of a model in a process share.
    """

    key: ClassVar[str]
    folder: ClassVar[str]
    worker_bytes: ClassVar[int]
    environment_bytes: ClassVar[int]
    model_bytes: ClassVar[int] = 0

    @abstractmethod
    def tasks(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the full names of the tasks, in the order of their ids.

        Raises:
            RecipeError: a task is unknown or named twice.
        """

    @abstractmethod
    def spaces(self, values: Mapping[str, Any]) -> Spaces | None:
        """Returns the sizes of the environments; None for one that only its module knows."""

    @abstractmethod
    def replay_layout(
        self, values: Mapping[str, Any], spaces: Spaces, capacity: int, batch_size: int, num_envs: int
    ) -> LaneLayout | Ring:
        """Returns the shape of a replay that so many environments fill."""

    def process_bytes(self, tasks: int, count: int, workers: int) -> int:
        """Returns about what environments take, the tasks divided evenly over the processes.

        Args:
            tasks: of the recipe.
            count: environments.
            workers: processes beside the learner's; 0 steps them there.
        """
        processes = workers or 1
        models = round(processes * min(-(-count // processes), tasks) * _MODELS_A_TASK)
        return workers * self.worker_bytes + count * self.environment_bytes + models * self.model_bytes


class MetaworldTasks(EnvironmentKind):
    """Tasks of Meta-World: planned episodes of one length, one size for all, models with their meshes.

    An environment has the starts of its 50 goals.
    """

    key, folder = "tasks", "metaworld"
    worker_bytes, environment_bytes, model_bytes = 100 * _MIB, 2 * _MIB, 46 * _MIB

    def tasks(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Expands the recipe's `tasks`."""
        return task_names(values["tasks"])

    def spaces(self, values: Mapping[str, Any]) -> Spaces:
        """Returns those of all tasks."""
        return METAWORLD_SPACES

    def replay_layout(
        self, values: Mapping[str, Any], spaces: Spaces, capacity: int, batch_size: int, num_envs: int
    ) -> LaneLayout:
        """Returns rings of whole episodes, one for each environment of a task."""
        tasks, steps = len(self.tasks(values)), values["episode_steps"]
        return LaneLayout(tasks, num_envs, capacity, batch_size, steps, spaces.observation, spaces.action)


class GymnasiumEnvironment(EnvironmentKind):
    """One environment of Gymnasium, which ends its episodes itself.

    Its memory is that of the largest that come with Gymnasium, MuJoCo's; nobody knows what another one takes.
    """

    key, folder = "environment", "gymnasium"
    worker_bytes, environment_bytes = 60 * _MIB, 2 * _MIB

    def tasks(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the environment as the only task, with its arguments."""
        split_environment(values["environment"])
        return (values["environment"],)

    def spaces(self, values: Mapping[str, Any]) -> Spaces | None:
        """Returns those in the table of what comes with Gymnasium."""
        return known_spaces().get(values["environment"])

    def replay_layout(
        self, values: Mapping[str, Any], spaces: Spaces, capacity: int, batch_size: int, num_envs: int
    ) -> Ring:
        """Returns one ring of whole transitions."""
        return Ring(capacity, batch_size, spaces.observation, spaces.action)


METAWORLD, GYMNASIUM = MetaworldTasks(), GymnasiumEnvironment()
KINDS: tuple[EnvironmentKind, ...] = (METAWORLD, GYMNASIUM)


def split_environment(name: str) -> tuple[str, dict[str, Any]]:
    """Splits the name of a Gymnasium environment into its id and the arguments that it is made with.

    A value is JSON, or else text. As in the query of a URL, `%26` stands for `&`.

    Raises:
        RecipeError: an argument is not `name=value`, or is there twice.
    """
    identity, mark, query = name.partition("?")
    arguments: dict[str, Any] = {}
    for pair in query.split("&") if mark else ():
        key, equals, text = pair.partition("=")
        if not equals or not key.isidentifier() or key in arguments:
            fault = "is there twice" if key in arguments else "is not name=value"
            raise RecipeError(f"environment {name}: the argument {pair!r} {fault}")
        text = unquote(text)
        try:
            arguments[key] = _PYTHONS[text] if text in _PYTHONS else json.loads(text)
        except (ValueError, RecursionError):
            arguments[key] = text
    return identity, arguments


def environment_of(values: Mapping[str, Any]) -> EnvironmentKind:
    """Returns the kind of environments that a recipe with these values runs on."""
    return GYMNASIUM if GYMNASIUM.key in values else METAWORLD


def task_count(values: Mapping[str, Any]) -> int:
    """Returns how many tasks a recipe with these values has; one environment is one."""
    return len(environment_of(values).tasks(values))


FIXED_GOALS = 42
"""Seed of the goal lists that all runs share, unless their recipe says otherwise."""


def goal_seed(values: Mapping[str, Any], seed: int) -> int:
    """Returns the seed of the goal lists of a run with this seed."""
    return seed if values.get("goals") == "seed" else FIXED_GOALS
