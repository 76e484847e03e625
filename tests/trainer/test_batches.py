"""How rollouts are cut into batches."""

from __future__ import annotations

import pytest

from trainer import recipe
from trainer.recipe import RecipeError


def test_a_batch_divides_the_rollout() -> None:
    values = {"rollout_size": 4096, "batch_size": 1000}
    with pytest.raises(RecipeError, match=r"must divide rollout_size = 4096, .* take 512 or 1024, or auto"):
        recipe.batches("mine", values, 1)
    assert recipe.batches("mine", {"rollout_size": 4096, "batch_size": 512}, 16) == recipe.Batches(
        256, 4096, 512
    )
    assert recipe.batches("mine", {"rollout_size": 40}, 16) == recipe.Batches(3, 48, 48)
    whole_episodes = {"rollout_size": 100_000, "episode_steps": 500}
    assert recipe.batches("mine", whole_episodes, 32) == recipe.Batches(3500, 112_000, 112_000)
    with pytest.raises(
        RecipeError, match=r"rollout of 3500 steps x 32 = 112000, .* take 2800 or 3200, or auto"
    ):
        recipe.batches("mine", whole_episodes | {"batch_size": 3125}, 32)


@pytest.mark.parametrize(
    ("rollout", "envs", "chosen"),
    [(4096, 16, 1024), (4096, 10, 1025), (65536, 8, 4096), (3, 1, 1), (13, 1, 1)],
)
def test_auto_takes_the_largest_divisor_that_leaves_four_batches(
    rollout: int, envs: int, chosen: int
) -> None:
    cuts = recipe.batches("mine", {"rollout_size": rollout, "batch_size": "auto"}, envs)
    assert cuts.batch_size == chosen
    assert cuts.rollout % chosen == 0
