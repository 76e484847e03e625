"""The parameters that a forecast counts without PyTorch are those of the modules that a run builds."""

from contextlib import nullcontext

import pytest
import torch

from trainer import recipe as recipes
from trainer.envs.spaces import ActionSpace, unit_box
from trainer.recipe.sizes import Sizes
from trainer.recipe.spaces import Spaces

META = torch.device("meta")
"""Where modules have shapes and no memory, so that the widest are built at once."""
TREE = Spaces(observation=7, action=2, choices=(3, 4))
"""Two choices at once: what only PPO and A2C learn."""


def actions(spaces: Spaces) -> ActionSpace:
    choices = spaces.choices
    return (
        ActionSpace("discrete", nvec=choices, start=(0,) * len(choices))
        if choices
        else unit_box(spaces.action)
    )


def built(sizes: Sizes) -> int:
    entry, values, spaces = sizes.recipe.entry, sizes.recipe.values, sizes.spaces
    common = values, spaces.observation, actions(spaces), sizes.tasks, META
    with META:
        if entry.loop == "on-policy":
            agent = entry.agent(*common, sizes.tasks, nullcontext)
            return int(agent._flat.numel())
        agent = entry.agent(*common, nullcontext)
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
