"""What ranks share, and what is said where they cannot."""

import pytest

from trainer import recipe as recipes
from trainer.recipe import RecipeError, check_shares, shared_envs


def test_what_divides_is_shared():
    check_shares(recipes.load("guide-mt10"), 32, 2)
    check_shares(recipes.load("ppo"), None, 2)
    check_shares(recipes.load("a2c"), 6, 3)
    assert [shared_envs(10, ranks) for ranks in (1, 2, 3, 4)] == [10, 10, 12, 12]


@pytest.mark.parametrize(
    ("name", "num_envs", "ranks", "message"),
    [
        ("ppo", 9, 2, "9 environments cannot be shared by 2 ranks; 8 or 10 can"),
        ("ppo", 8, 128, "8 environments cannot be shared by 128 ranks; 128 can"),
        (
            "ppo",
            128,
            128,
            "recipe ppo: batch_size = 64 cannot be shared by 128 ranks; 128 can, with --unlock",
        ),
        ("strong-mt10", 30, 3, "batch_size = 1280 cannot be shared by 3 ranks; 1278 or 1281 can"),
    ],
)
def test_what_does_not_divide_is_refused_with_the_nearest_that_do(name, num_envs, ranks, message):
    with pytest.raises(RecipeError, match=message):
        check_shares(recipes.load(name), num_envs, ranks)
