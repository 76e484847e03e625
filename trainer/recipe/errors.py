"""Errors of recipes and of their use."""

from __future__ import annotations


class RecipeError(ValueError):
    """A recipe is unknown, broken, or was asked for a value it cannot hold. The text is one line."""


class RecipeLocked(RecipeError):  # noqa: N818 - reads as a state, and is a RecipeError
    """A locked value was overridden without unlocking it."""


def check_order(recipe: str, *pairs: tuple[str, str, float, float]) -> None:
    """Checks that values are in order.

    Args:
        recipe: its name.
        pairs: two names and their values, the first of which may not be greater.

    Raises:
        RecipeError: it is.
    """
    for small, large, low, high in pairs:
        if low > high:
            raise RecipeError(f"recipe {recipe}: {large} = {high} is less than {small} ({low})")
