"""What an algorithm's entry answers; see `trainer.recipe.registry` for where entries are.

An entry imports nothing but the standard library and `trainer.recipe`, so that the laptop reads it too. What
needs PyTorch is imported within the methods that make it, and is `Any` here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

from trainer.recipe.batches import multiples_near
from trainer.recipe.environments import KINDS, EnvironmentKind, environment_of, task_count
from trainer.recipe.errors import RecipeError, check_order
from trainer.recipe.lanes import LaneLayout, Ring
from trainer.recipe.processes import worker_processes
from trainer.recipe.share import FLOAT, ParameterCount, Part, Share, acts_on_host
from trainer.recipe.spaces import Spaces
from trainer.recipe.tables import DIRECTORY, read_table

Values = Mapping[str, Any]
"""The values of a recipe."""
Autocast = Callable[[], AbstractContextManager[Any]]
"""Makes the context in which networks are evaluated."""
Average = Callable[[Sequence[Any]], list[Any]]
"""Returns the means of tensors over all learners that have an equal part of each batch."""
Divided = dict[str, tuple[int, Sequence[int]]]
"""What ranks share, by the name of the value: its size, and sizes near it that they can share."""


class Algorithm(ABC):
    """An algorithm.

    Attributes:
        name: what recipes call it; its module in `trainer.algorithms` and its schemas have the same name.
        label: what people call it.
        loop: which of the loops trains it.
        box: how it learns the actions of a Box, see `trainer.envs.spaces.Scaling`; None if it does not.
        discrete: whether it learns discrete actions.
        envs: default number of environments, unless there are more tasks.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    loop: ClassVar[Literal["off-policy", "on-policy"]]
    box: ClassVar[Literal["scaled", "clipped"] | None]
    discrete: ClassVar[bool]
    envs: ClassVar[int] = 1

    @property
    def environments(self) -> tuple[EnvironmentKind, ...]:
        """The kinds of environments that it has a schema for."""
        kinds = (kind for kind in KINDS if (DIRECTORY / f"{self._schema_on(kind)}.toml").exists())
        return tuple(kinds)

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
        environment_of(values).tasks(values)
        for small, large in (("evaluation_goals", "goals_per_task"), ("log_std_min", "log_std_max")):
            if small in values:
                check_order(recipe, (small, large, values[small], values[large]))

    def learns(self, choices: Sequence[int]) -> bool:
        """Returns whether it learns such actions: discrete ones, or those of a Box without choices."""
        return self.discrete if choices else self.box is not None

    def usual_envs(self, values: Values) -> int:
        """Returns the default number of environments: one a task at least."""
        return max(self.envs, task_count(values))

    def widest(self, values: Values) -> int:
        """Returns the width of the widest hidden layer of all networks; 1 where there is none."""
        layers = (layers for name, layers in values.items() if name.endswith("hidden"))
        return max((width for hidden in layers for width in hidden), default=1)

    @abstractmethod
    def usual_workers(self, num_envs: int, processors: int) -> int:
        """Returns the default number of processes that step so many environments."""

    def whole_steps(self, recipe: str, values: Values, num_envs: int, steps: int) -> int:
        """Returns the environment steps of a run that is asked for so many."""
        return steps

    @abstractmethod
    def batch_size(self, recipe: str, values: Values, num_envs: int) -> int:
        """Returns the transitions of a batch, of all ranks together.

        Raises:
            RecipeError: with so many environments there are no whole batches; the nearest sizes are named.
        """

    @abstractmethod
    def divided(self, recipe: str, values: Values, num_envs: int, ranks: int) -> Divided:
        """Returns what the ranks share."""

    def inputs(self, values: Values, spaces: Spaces) -> int:
        """Returns how many numbers the policy is shown."""
        return spaces.observation

    @abstractmethod
    def count(self, values: Values, spaces: Spaces) -> ParameterCount:
        """Counts the parameters."""

    @abstractmethod
    def memory(self, share: Share, micro_batches: int) -> list[Part]:
        """Returns what a rank keeps and works with where it learns, without its replay.

        Args:
            share: of the rank.
            micro_batches: parts in which a batch of a replay is computed.
        """

    @abstractmethod
    def graphs(self, share: Share) -> int:
        """Returns how many graphs a GPU captures."""

    def replay(self, share: Share) -> LaneLayout | Ring | None:
        """Returns the shape of a rank's replay; None without one."""
        return None

    def host_memory(self, share: Share) -> list[Part]:
        """Returns what the host of a GPU keeps for a rank."""
        return []

    def config(self, values: Values) -> Any:
        """Returns the hyperparameters of networks and update, a dataclass."""
        return self.learner().configuration.from_values(values)

    @abstractmethod
    def policy(self, values: Values, observation_dim: int, action_space: Any, num_tasks: int) -> Any:
        """Builds the policy, a `trainer.nn.actor.Actor`, with fresh weights.

        Args:
            values: of the recipe.
            observation_dim: numbers in an observation.
            action_space: a `trainer.envs.spaces.ActionSpace`.
            num_tasks: tasks.
        """

    @abstractmethod
    def learner(self) -> Any:
        """Returns the class of the learner, whose `configuration` is that of its hyperparameters."""

    def _schema_on(self, environment: EnvironmentKind) -> str:
        return f"schemas/{environment.folder}/{self.name}"


class OffPolicyAlgorithm(Algorithm):
    """An algorithm that learns from a replay of past transitions.

    Attributes:
        networks: names the networks that learn, for a table of memory.
        targets: name and note of the row of the target networks.
        acting: names the network that acts.
    """

    loop = "off-policy"
    networks: ClassVar[str]
    targets: ClassVar[tuple[str, str]]
    acting: ClassVar[str] = "actor"

    def check(self, recipe: str, values: Values) -> None:
        """Checks also that the replay holds a batch, a batch all tasks, and that networks can tell these."""
        super().check(recipe, values)
        tasks = task_count(values)
        check_order(
            recipe,
            ("the number of tasks", "batch_size", tasks, values["batch_size"]),
            ("the number of tasks", "warmup_steps", tasks, values["warmup_steps"]),
            ("batch_size", "replay_capacity", values["batch_size"], values["replay_capacity"]),
        )
        if values.get("heads") == "one-hot" and not values["one_hot"] and tasks > 1:
            raise RecipeError(
                f"recipe {recipe}: one_hot = false leaves the task unknown without multi-head networks"
            )

    def inputs(self, values: Values, spaces: Spaces) -> int:
        """Counts the observation, and the one-hot task id where there is one."""
        return spaces.observation + (task_count(values) if values.get("one_hot") else 0)

    def usual_workers(self, num_envs: int, processors: int) -> int:
        """Leaves the learner a processor, for it learns meanwhile."""
        return worker_processes(num_envs, processors)

    def batch_size(self, recipe: str, values: Values, num_envs: int) -> int:
        """Returns the recipe's."""
        size: int = values["batch_size"]
        return size

    def divided(self, recipe: str, values: Values, num_envs: int, ranks: int) -> Divided:
        """Returns batch and replay."""
        sizes = {name: values[name] for name in ("batch_size", "replay_capacity")}
        return {name: (size, multiples_near(size, ranks)) for name, size in sizes.items()}

    def memory(self, share: Share, micro_batches: int) -> list[Part]:
        """Returns what learns, with the copies that act."""
        targets, note = self.targets
        kept = [
            Part("networks", self.network_bytes(share), note=self.networks),
            Part(targets, share.count.targets * FLOAT, note=note),
            Part("optimiser", self.optimizer_bytes(share), note="two moments a parameter"),
            Part("gradients", share.count.trained * FLOAT),
        ]
        if share.on_gpu and (acting := self.acting_bytes(share)):
            kept.append(Part("acting", acting, note=f"copies of the {self.acting}, inputs and outputs"))
        workspace = self.workspace_bytes(share, micro_batches)
        return [*kept, Part("update", workspace, exact=False, note="activations of one update")]

    def graphs(self, share: Share) -> int:
        """Counts the updates of a cycle, and acting unless the host acts."""
        return self.turns(share.values) + (1 if self.acting_bytes(share) else 0)

    def turns(self, values: Values) -> int:
        """Returns the number of updates in a cycle, which differ."""
        return 1

    @abstractmethod
    def network_bytes(self, share: Share) -> int:
        """Returns the bytes of the parameters that learn, and of all networks' constants."""

    def optimizer_bytes(self, share: Share) -> int:
        """Returns the bytes of Adam's state: two numbers a parameter, and a count a tensor."""
        return (2 * share.count.trained + self.optimizer_tensors(share)) * FLOAT

    @abstractmethod
    def optimizer_tensors(self, share: Share) -> int:
        """Returns the number of tensors that Adam counts steps for."""

    @abstractmethod
    def workspace_bytes(self, share: Share, micro_batches: int = 1) -> int:
        """Returns about how many bytes an update takes at its peak."""

    @abstractmethod
    def noise_and_action(self, spaces: Spaces) -> int:
        """Returns how many numbers acting draws and gives for an environment."""

    @abstractmethod
    def acting_constants(self, share: Share) -> int:
        """Returns the bytes of the acting network's constants besides the encoder's, of both copies."""

    def acting_bytes(self, share: Share) -> int:
        """Returns the bytes of what acts on a GPU, 0 where the host acts.

        These are inputs and actions and, where acting lags, the weights in use and the next ones.
        """
        spaces = share.spaces
        if acts_on_host(share.count.actor, share.environments):
            return 0
        tables = share.environments * (spaces.observation + self.noise_and_action(spaces) + 1) * FLOAT
        if not share.lag:
            return tables
        copies = 2 * (share.count.actor + 2 * spaces.observation) + share.tasks**2
        return tables + copies * FLOAT + self.acting_constants(share)

    def replay(self, share: Share) -> LaneLayout | Ring:
        """Returns the shape that suits the episodes of the environments."""
        capacity = share.values["replay_capacity"] // share.ranks
        kind = environment_of(share.values)
        return kind.replay_layout(share.values, share.spaces, capacity, share.batch, share.environments)

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
        average: Average = list,
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
        config, sizes = self.config(values), (observation_dim, action_space.dim, num_tasks)
        how = {"micro_batches": micro_batches, "reward_factor": reward_factor, "average": average}
        return self.learner()(config, *sizes, device, autocast, **how)

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
