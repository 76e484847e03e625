"""Tells a recipe's kind from the keys of its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIXED_GOALS = 42
"""Seed of the goal lists that all runs share, unless their recipe says otherwise."""


def goal_seed(values: Mapping[str, Any], seed: int) -> int:
    """Returns the seed of the goal lists of a run with this seed."""
    return seed if values.get("goals") == "seed" else FIXED_GOALS


def on_policy(values: Mapping[str, Any]) -> bool:
    """Returns whether it learns from rollouts of its own policy, not from a replay buffer."""
    return "rollout_size" in values


def on_metaworld(values: Mapping[str, Any]) -> bool:
    """Returns whether its environments are Meta-World's tasks, not those of one Gymnasium environment."""
    return "environment" not in values
