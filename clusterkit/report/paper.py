"""Published results beside which a report sets runs of the same tasks and networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainer.recipe.tables import read_table


@dataclass(frozen=True)
class Published:
    """A published result of the same tasks and algorithm."""

    source: str
    benchmark: str
    network: str
    success: float
    """Final, interquartile mean over 10 seeds, 0..1."""
    steps: int
    dormant: float | None
    """Share of dormant neurons in the critics at the end; None where it is not plotted."""
    exact: bool
    """False for the closest published network."""


def published(recipe: Mapping[str, Any]) -> Published | None:
    """Returns the published result for a recipe's tasks and networks.

    Args:
        recipe: its values (`tasks`, `actor_hidden`, `critic_hidden`, `critic_network`).

    Returns:
        None if nothing close was published: other tasks, or critics without three layers of such a width.
    """
    tasks, actor, critics = (
        recipe.get("tasks"),
        _widths(recipe, "actor_hidden"),
        _widths(recipe, "critic_hidden"),
    )
    if recipe.get("critic_network", "mlp") != "mlp" or not isinstance(tasks, list) or not actor:
        return None
    document = read_table("benchmarks/published")
    near = [
        row for row in document["results"] if [row["benchmark"]] == tasks and [row["critics"]] * 3 == critics
    ]
    if not near:
        return None
    row = min(near, key=lambda row: (abs(row["actor"] - actor[0]), row["actor"]))
    return Published(
        source=document["source"],
        benchmark=row["benchmark"],
        network=f"actor 3x{row['actor']:,}, critics 3x{row['critics']:,}",
        success=row["success"],
        steps=document["steps"][row["benchmark"]],
        dormant=row.get("dormant"),
        exact=actor == [row["actor"]] * 3,
    )


def _widths(recipe: Mapping[str, Any], key: str) -> list[int]:
    """Returns the widths of a network's layers; empty if the recipe's value is malformed."""
    value = recipe.get(key)
    return value if isinstance(value, list) and all(isinstance(width, int) for width in value) else []
