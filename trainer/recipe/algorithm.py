"""What an algorithm's entry answers; see `trainer.recipe.registry` for where entries are.

An entry imports nothing but the standard library and `trainer.recipe`, so that the laptop reads it too. What
needs PyTorch is imported within the methods that make it, and is `Any` here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

from trainer.recipe.environments import KINDS, EnvironmentKind, environment_of
from trainer.recipe.errors import check_order
from trainer.recipe.tables import DIRECTORY, read_table

Values = Mapping[str, Any]
"""The values of a recipe."""
Autocast = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which networks are evaluated."""


class Algorithm(ABC):
    """An algorithm.

    Attributes:
        name: what recipes call it; its module in `trainer.algorithms` and its schemas have the same name.
        label: what people call it.
        loop: which of the loops trains it.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    loop: ClassVar[Literal["off-policy", "on-policy"]]

    @property
    def environments(self) -> tuple[EnvironmentKind, ...]:
        """The kinds of environments that it has a schema for."""
        found = (kind for kind in KINDS if (DIRECTORY / f"{self._schema_on(kind)}.toml").exists())
        return tuple(found)

    def schema(self, values: Values) -> dict[str, dict[str, Any]]:
        """Returns the type, the range and the meaning of every value of a recipe, by the value's name.

        Args:
            values: of which one tells the kind of environments; else they are of the first.
        """
        own = self.environments
        return read_table(self._schema_on(next((kind for kind in own if kind.key in values), own[0])))

    def on(self, environment: EnvironmentKind) -> Algorithm:
        """Returns the algorithm as it is on a kind of environments."""
        return self

    def check(self, recipe: str, values: Values) -> None:
        """Checks what no single value shows.

        Args:
            recipe: its name.
            values: which the schema allows.

        Raises:
            RecipeError: values contradict each other.
        """
        environment_of(values).check(recipe, values)

    @abstractmethod
    def config(self, values: Values) -> Any:
        """Returns the hyperparameters of networks and update, a dataclass."""

    @abstractmethod
    def policy(self, values: Values, observation_dim: int, action_space: Any, num_tasks: int) -> Any:
        """Builds the policy, a `trainer.nn.actor.Actor`, with fresh weights.

        Args:
            values: of the recipe.
            observation_dim: numbers in an observation.
            action_space: a `trainer.envs.spaces.ActionSpace`.
            num_tasks: tasks.
        """

    def _schema_on(self, environment: EnvironmentKind) -> str:
        return f"schemas/{environment.folder}/{self.name}"


class OffPolicyAlgorithm(Algorithm):
    """An algorithm that learns from a replay of past transitions."""

    loop = "off-policy"

    def check(self, recipe: str, values: Values) -> None:
        """Checks also that the replay holds a batch, and a batch all tasks."""
        super().check(recipe, values)
        tasks = len(environment_of(values).tasks(values))
        check_order(
            recipe,
            ("the number of tasks", "batch_size", tasks, values["batch_size"]),
            ("the number of tasks", "warmup_steps", tasks, values["warmup_steps"]),
            ("batch_size", "replay_capacity", values["batch_size"], values["replay_capacity"]),
        )

    @abstractmethod
    def agent(
        self,
        values: Values,
        observation_dim: int,
        action_space: Any,
        num_tasks: int,
        device: Any,
        autocast: Autocast,
        *,
        micro_batches: int = 1,
        reward_factor: Any = None,
        average: Callable[[Sequence[Any]], list[Any]] = list,
    ) -> Any:
        """Builds the learner, which learns from a `trainer.replay.Batch`.

        Args:
            values: of the recipe.
            observation_dim: numbers in an observation.
            action_space: a `trainer.envs.spaces.ActionSpace`.
            num_tasks: tasks.
            device: a `torch.device`, where everything lies.
            autocast: makes the context in which the networks are evaluated.
            micro_batches: parts in which a batch is computed, to save memory.
            reward_factor: tensor (num_tasks,), what each task's rewards are multiplied by; None for 1.
            average: returns the means of tensors over all learners that have an equal part of each batch.
        """

    def group(self, agents: Sequence[Any], streams: Sequence[AbstractContextManager[None]]) -> Any | None:
        """Joins the learners of several seeds to one whose updates are theirs; None where there is no such.

        Args:
            agents: one a seed, of one configuration, on one device.
            streams: within which the default random generators are each seed's own.
        """
        return None

    def diagnose(self, agent: Any, batch: Any, tasks: Sequence[str]) -> dict[str, float]:
        """Returns how fit the networks still are to learn, for an evaluation; leaves no trace in the agent.

        Args:
            agent: the learner.
            batch: the last that was learnt from.
            tasks: names of the tasks.
        """
        return {}


class OnPolicyAlgorithm(Algorithm):
    """An algorithm that learns from rollouts of its present policy."""

    loop = "on-policy"

    @abstractmethod
    def learner(self) -> Any:
        """Returns the class of the learner, a `trainer.algorithms.on_policy.OnPolicy`."""

    def agent(
        self,
        values: Values,
        observation_dim: int,
        action_space: Any,
        num_tasks: int,
        device: Any,
        envs: int,
        autocast: Autocast,
        *,
        learners: int = 1,
        average: Callable[[Sequence[Any]], list[Any]] = list,
    ) -> Any:
        """Builds the learner.

        Args:
            values: of the recipe.
            observation_dim: numbers in an observation.
            action_space: a `trainer.envs.spaces.ActionSpace`.
            num_tasks: tasks.
            device: a `torch.device`, where everything lies.
            envs: environments of a rollout.
            autocast: makes the context in which the networks are evaluated.
            learners: how many have an equal part of each rollout and batch.
            average: returns the means of tensors over all of them.
        """
        policy = self.policy(values, observation_dim, action_space, num_tasks).to(device)
        return self.learner()(self.config(values), policy, envs, autocast, learners=learners, average=average)
