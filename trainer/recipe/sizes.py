"""The sizes of a run, as far as they are known before it is made, and how ranks share them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.recipe.batches import multiples_near
from trainer.recipe.errors import RecipeError
from trainer.recipe.lanes import LaneLayout, Ring
from trainer.recipe.recipe import Recipe
from trainer.recipe.registry import unlearnable
from trainer.recipe.share import ParameterCount, Share
from trainer.recipe.spaces import Spaces, alike


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
    def unknown(self) -> str:
        """Why memory cannot be computed; empty if it can."""
        spaces = self.given or self.recipe.environment.spaces(self.recipe.values)
        (name, *_) = self.recipe.environment.tasks(self.recipe.values)
        if spaces is None:
            said = f"only {name} knows how large an observation is; set --observation-dim and --action-dim"
            close = alike(name)
            return f"{said}; did you mean {' or '.join(close)}?" if close else said
        return unlearnable(self.recipe.entry, name, spaces.choices)

    @property
    def spaces(self) -> Spaces:
        """The sizes of its environment, where they are known."""
        spaces = self.given or self.recipe.environment.spaces(self.recipe.values)
        assert spaces is not None, "`unknown` says why"
        return spaces

    @property
    def count(self) -> ParameterCount:
        """The numbers in its networks."""
        return self.recipe.entry.count(self.recipe.values, self.spaces)

    @property
    def tasks(self) -> int:
        """Tasks of the recipe."""
        return len(self.recipe.environment.tasks(self.recipe.values))

    @property
    def environments(self) -> int:
        """Environments of all ranks."""
        return self.num_envs or shared_envs(self.recipe.entry.usual_envs(self.recipe.values), self.ranks)

    @property
    def own_environments(self) -> int:
        """Environments of one rank."""
        return self.environments // self.ranks

    @property
    def own_batch(self) -> int:
        """Transitions of a rank in a batch."""
        recipe = self.recipe
        return recipe.entry.batch_size(recipe.name, recipe.values, self.environments) // self.ranks

    @property
    def share(self) -> Share:
        """What each rank has, where the sizes of the environment are known."""
        recipe = self.recipe
        return Share(
            recipe=recipe.name,
            values=recipe.values,
            tasks=self.tasks,
            spaces=self.spaces,
            inputs=recipe.entry.inputs(recipe.values, self.spaces),
            count=self.count,
            ranks=self.ranks,
            environments=self.own_environments,
            batch=self.own_batch,
            precision=self.precision,
            on_gpu=self.on_gpu,
            lag=self.lag,
        )

    @property
    def layout(self) -> LaneLayout | Ring | None:
        """The shape of a rank's replay; None without one."""
        return self.recipe.entry.replay(self.share)


def check_shares(recipe: Recipe, num_envs: int | None, ranks: int) -> None:
    """Checks that the given number of ranks can share a run with the same total batch.

    Args:
        recipe: its batch and its replay are shared.
        num_envs: environments of all ranks; None is as many as the trainer takes, which can be shared.
        ranks: how many.

    Raises:
        RecipeError: one of the numbers does not divide, with the nearest that do. One line.
    """
    if ranks == 1:
        return
    if num_envs is not None and num_envs % ranks:
        near = _nearest(multiples_near(num_envs, ranks), num_envs)
        raise RecipeError(f"{num_envs} environments cannot be shared by {ranks} ranks{near}")
    environments = num_envs or shared_envs(recipe.entry.usual_envs(recipe.values), ranks)
    for name, (total, fitting) in recipe.entry.divided(
        recipe.name, recipe.values, environments, ranks
    ).items():
        if total % ranks:
            raise RecipeError(
                f"recipe {recipe.name}: {name} = {total} cannot be shared by {ranks} ranks"
                f"{_nearest(fitting, total)}, with --unlock {name}"
            )


def shared_envs(num_envs: int, ranks: int) -> int:
    """Returns the least number of environments that is no less and can be shared by the ranks."""
    return -(-num_envs // ranks) * ranks


def _nearest(fitting: Sequence[int], total: int) -> str:
    below, above = (
        [size for size in fitting if size < total][-1:],
        [size for size in fitting if size > total][:1],
    )
    return f"; {' or '.join(str(size) for size in (*below, *above))} can"
