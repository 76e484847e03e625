"""The results of McLean et al. 2025 (arXiv 2503.05126), for comparison. Pure.

Decoded from the authors' figures (docs/paper.md); success is the interquartile mean over 10 seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_STEPS = {"MT10": 20_000_000, "MT25": 100_000_000, "MT50": 100_000_000}
_SUCCESS = {
    "MT10": {256: 0.743, 400: 0.748, 512: 0.841, 1024: 0.870, 2048: 0.922, 4096: 0.937},
    "MT25": {256: 0.587, 512: 0.630, 1024: 0.739, 2048: 0.802, 4096: 0.791},
    "MT50": {256: 0.527, 400: 0.549, 512: 0.590, 1024: 0.727, 2048: 0.823, 4096: 0.825},
}
_DORMANT = {
    "MT10": {256: 0.038, 512: 0.059, 1024: 0.150, 2048: 0.317, 4096: 0.489},
    "MT25": {256: 0.023, 512: 0.022, 1024: 0.082, 2048: 0.105, 4096: 0.270},
    "MT50": {256: 0.006, 512: 0.004, 1024: 0.005, 2048: 0.019, 4096: 0.121},
}
_ACTOR_AND_CRITIC = {(1024, 400): 0.843, (1024, 200): 0.701, (400, 1024): 0.880, (200, 1024): 0.874}
"""MT10 results by different widths of actor and critics."""


@dataclass(frozen=True)
class Published:
    """One point of the paper."""

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
    """The paper's result for a recipe's tasks and networks.

    Args:
        recipe: its values (`tasks`, `actor_hidden`, `critic_hidden`, `critic_network`).

    Returns:
        None if the paper has no close result: other tasks, or critics without three layers of a published
        width.
    """
    if recipe.get("critic_network", "mlp") != "mlp":
        return None
    tasks, actor, critic = (
        recipe.get("tasks"),
        _widths(recipe, "actor_hidden"),
        _widths(recipe, "critic_hidden"),
    )
    if not isinstance(tasks, list) or len(tasks) != 1 or tasks[0] not in _SUCCESS:
        return None
    if not actor or len(critic) != 3 or len(set(critic)) != 1:
        return None
    name, width, wanted = str(tasks[0]), critic[0], actor[0]
    points = {(one, one): success for one, success in _SUCCESS[name].items()}
    points |= _ACTOR_AND_CRITIC if name == "MT10" else {}
    near = [widths for widths in points if widths[1] == width]
    if not near:
        return None
    chosen = min(near, key=lambda widths: (abs(widths[0] - wanted), widths[0]))
    return Published(
        benchmark=name,
        network=f"actor 3x{chosen[0]:,}, critics 3x{chosen[1]:,}",
        success=points[chosen],
        steps=_STEPS[name],
        dormant=_DORMANT[name].get(width) if chosen[0] == width else None,
        exact=actor == [chosen[0]] * 3,
    )


def _widths(recipe: Mapping[str, Any], key: str) -> list[int]:
    """The widths of a network's layers; empty if the recipe's value is malformed."""
    value = recipe.get(key)
    return value if isinstance(value, list) and all(isinstance(one, int) for one in value) else []
