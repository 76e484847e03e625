"""The share of a run's environments, batch and replay that each rank gets."""

from __future__ import annotations

from collections.abc import Sequence

from trainer.recipe.batches import batches, divisors, usual_envs
from trainer.recipe.errors import RecipeError
from trainer.recipe.kinds import on_policy
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
        raise RecipeError(
            f"{num_envs} environments cannot be shared by {ranks} ranks{_near(num_envs, ranks)}"
        )
    if on_policy(recipe.values):
        cuts = batches(recipe.name, recipe.values, num_envs or shared_envs(usual_envs(recipe.values), ranks))
        if cuts.batch_size % ranks:
            fitting = [ranks * each for each in divisors(cuts.rollout // ranks)]
            raise _unshared(recipe, "batch_size", cuts.batch_size, ranks, _nearest(fitting, cuts.batch_size))
        return
    for name in ("batch_size", "replay_capacity"):
        total = recipe.values[name]
        if total % ranks:
            raise _unshared(recipe, name, total, ranks, _near(total, ranks))


def shared_envs(num_envs: int, ranks: int) -> int:
    """Returns the least number of environments that is no less and can be shared by the ranks."""
    return -(-num_envs // ranks) * ranks


def _unshared(recipe: Recipe, name: str, total: int, ranks: int, near: str) -> RecipeError:
    return RecipeError(
        f"recipe {recipe.name}: {name} = {total} cannot be shared by {ranks} ranks{near}, "
        f"with --unlock {name}"
    )


def _near(total: int, ranks: int) -> str:
    below = total // ranks * ranks
    return _nearest([below, below + ranks] if below else [ranks], total)


def _nearest(fitting: Sequence[int], total: int) -> str:
    below, above = (
        [each for each in fitting if each < total][-1:],
        [each for each in fitting if each > total][:1],
    )
    return f"; {' or '.join(str(each) for each in (*below, *above))} can"
