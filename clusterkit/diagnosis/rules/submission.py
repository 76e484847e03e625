"""A run that the scheduler never took."""

from __future__ import annotations

RULES = ()
