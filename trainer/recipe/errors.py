"""Errors of recipes and of their use."""

from __future__ import annotations


class RecipeError(ValueError):
    """A recipe is unknown, broken, or was asked for a value it cannot hold. The text is one line."""


class RecipeLocked(RecipeError):  # noqa: N818 - reads as a state, and is a RecipeError
    """A locked value was overridden without unlocking it."""
