"""The parameters that a forecast counts without PyTorch are those of the modules that a run builds."""

import pytest
import torch

from tests.trainer.allocated import made
from trainer import recipe as recipes
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

META = torch.device("meta")
"""Where modules have shapes and no memory, so that the widest are built at once."""
TREE = Spaces(observation=7, action=2, choices=(3, 4))
"""Two choices at once: what only PPO and A2C learn."""


def built(sizes: Sizes) -> int:
    with META:
        agent = made(sizes, device=META)
    if sizes.recipe.entry.loop == "on-policy":
        return int(agent._flat.numel())
    return sum(tensor.numel() for one in agent.optimizers.values() for tensor in one._parameters)


@pytest.mark.parametrize("name", recipes.names())
def test_what_is_counted_is_what_is_built(name: str) -> None:
    recipe = recipes.load(name)
    sizes = Sizes(recipe, given=None if not Sizes(recipe).unknown else Spaces(11, 3))
    assert sizes.count.trained == built(sizes)


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_choices_are_counted_each(name: str) -> None:
    sizes = Sizes(recipes.load(name), given=TREE)
    assert sizes.count.trained == built(sizes)


@pytest.mark.parametrize(
    "changes", [{"dueling": "true"}, {"hidden": "64"}, {"dueling": "true", "hidden": "32,16,8"}]
)
def test_the_streams_of_a_dueling_network_are_counted(changes: dict[str, str]) -> None:
    sizes = Sizes(recipes.load("dqn").override(changes, changes))
    assert sizes.count.trained == built(sizes)


@pytest.mark.parametrize(
    ("name", "width", "parameters"),
    [
        ("mclean2025-mt10", 1024, 2_232_400),
        ("mclean2025-mt10", 2048, 8_659_024),
        ("mclean2025-mt10", 4096, 34_095_184),
        ("mclean2025-mt50", 256, 257_424),
        ("mclean2025-mt50", 512, 776_592),
        ("mclean2025-mt50", 1024, 2_601_360),
        ("mclean2025-mt50", 4096, 35_570_064),
    ],
)
def test_actors_have_the_published_sizes(name: str, width: int, parameters: int) -> None:
    widths = f"{width},{width},{width}"
    loaded = recipes.load(name).override({"actor_hidden": widths}, {"actor_hidden"})
    assert Sizes(loaded).count.actor == parameters


def test_critics_have_the_published_size() -> None:
    assert round(Sizes(recipes.load("mclean2025-mt10")).count.critics, -3) == 4_329_000
