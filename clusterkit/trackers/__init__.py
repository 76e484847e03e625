"""Trackers of metrics: one protocol, and one module for each implementation of it.

A package may add a tracker: an entry point of the group `clusterkit.trackers`, whose name is the key in the
settings and whose value is a module with a `TRACKER` (see `clusterkit.trackers.base.Tracker`).
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clusterkit.trackers.base import Tracker

ENTRY_POINTS = "clusterkit.trackers"
BUILT_IN = ("tensorboard", "mlflow")
"""Names of the trackers that are modules here."""


@cache
def tracker_named(name: str) -> type[Tracker]:
    """Returns the tracker with this name.

    Raises:
        ValueError: there is no such tracker; the message lists all.
    """
    module = f"{__name__}.{name}"
    if name not in BUILT_IN:
        from importlib.metadata import entry_points

        added = {point.name: point.value for point in entry_points(group=ENTRY_POINTS)}
        if name not in added:
            raise ValueError(f"is not a tracker; there are {', '.join((*BUILT_IN, *sorted(added)))}")
        module = added[name]
    tracker: type[Tracker] = import_module(module).TRACKER
    return tracker
