"""The sizes that determine a run's memory, for all of its ranks and for one."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.lanes import LaneLayout, Ring
from trainer.recipe.batches import Batches, batches, usual_envs
from trainer.recipe.footprint import ParameterCount, parameter_count
from trainer.recipe.kinds import on_metaworld, on_policy
from trainer.recipe.recipe import Recipe
from trainer.recipe.shares import shared_envs
from trainer.recipe.spaces import Spaces, alike
from trainer.recipe.tables import task_names


@dataclass(frozen=True)
class Sizes:
    """The sizes that determine a run's memory.

    Attributes:
        recipe: any; memory can be computed if the sizes of its environment are known, see `unknown`.
        num_envs: environments; None is as many as the trainer takes.
        precision: `fp32`, `tf32` or `bf16`.
        on_gpu: whether it learns on a GPU.
        lag: vector steps the acting policy is behind; on a GPU 1, unless the run is in lockstep.
        ranks: processes that learn together, each on a GPU of its own, which `check_shares` allows.
        given: the sizes of the environment, if the user gives them; else they are looked up.
    """

    recipe: Recipe
    num_envs: int | None = None
    precision: str = "fp32"
    on_gpu: bool = True
    lag: int = 1
    ranks: int = 1
    given: Spaces | None = None

    @property
    def on_policy(self) -> bool:
        """Whether it learns from rollouts."""
        return on_policy(self.recipe.values)

    @property
    def on_metaworld(self) -> bool:
        """Whether its environments are Meta-World's tasks."""
        return on_metaworld(self.recipe.values)

    @property
    def unknown(self) -> str:
        """Why memory cannot be computed; empty if it can."""
        found = self.given or self.recipe.environment.spaces(self.recipe.values)
        if self.on_metaworld:
            return ""
        name = self.recipe.values["environment"]
        if found is None:
            said = f"only {name} tells how large an observation is; say it: --observation-dim, --action-dim"
            close = alike(name)
            return f"{said}; did you mean {' or '.join(close)}?" if close else said
        if found.choices and not self.on_policy:
            return f"{name} has discrete actions, which SAC cannot learn"
        return ""

    @property
    def spaces(self) -> Spaces:
        """The sizes of its environment, where they are known."""
        found = self.given or self.recipe.environment.spaces(self.recipe.values)
        assert found is not None, "`unknown` says why"
        return found

    @property
    def count(self) -> ParameterCount:
        """The numbers in its networks."""
        spaces = self.spaces
        return parameter_count(self.recipe, spaces.observation, spaces.action, spaces.choices)

    @property
    def tasks(self) -> int:
        """Tasks of the recipe."""
        return len(task_names(self.recipe.values["tasks"])) if self.on_metaworld else 1

    @property
    def environments(self) -> int:
        """Environments of all ranks."""
        return self.num_envs or shared_envs(usual_envs(self.recipe.values), self.ranks)

    @property
    def own_environments(self) -> int:
        """Environments of one rank."""
        return self.environments // self.ranks

    @property
    def own_batch(self) -> int:
        """Transitions of a rank in a batch."""
        whole: int = self.cuts.batch_size if self.on_policy else self.recipe.values["batch_size"]
        return whole // self.ranks

    @property
    def cuts(self) -> Batches:
        """The cuts of the rollouts of all ranks together."""
        return batches(self.recipe.name, self.recipe.values, self.environments)

    @property
    def layout(self) -> LaneLayout | Ring:
        """Of a rank's replay: rings of whole episodes on Meta-World, of whole transitions elsewhere."""
        values, spaces = self.recipe.values, self.spaces
        capacity, batch = values["replay_capacity"] // self.ranks, self.own_batch
        if not self.on_metaworld:
            return Ring(capacity, batch, spaces.observation, spaces.action)
        return LaneLayout(
            num_tasks=self.tasks,
            num_envs=self.own_environments,
            capacity=capacity,
            batch_size=batch,
            episode_steps=values["episode_steps"],
            observation_dim=spaces.observation,
            action_dim=spaces.action,
        )
