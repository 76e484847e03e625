"""The seed of the goal lists of Meta-World's tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIXED_GOALS = 42
"""Seed of the goal lists that all runs share, unless their recipe says otherwise."""


def goal_seed(values: Mapping[str, Any], seed: int) -> int:
    """Returns the seed of the goal lists of a run with this seed."""
    return seed if values.get("goals") == "seed" else FIXED_GOALS
