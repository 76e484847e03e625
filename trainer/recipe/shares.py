"""The share of a run's environments, batch and replay that each rank gets."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.recipe.batches import multiples_near
from trainer.recipe.errors import RecipeError
from trainer.recipe.recipe import Recipe


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
