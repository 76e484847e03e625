"""Kinds of clusters, each with its backend.

A package may add a kind: an entry point of the group `clusterkit.backends`, whose name is the kind and whose
value is a module with a `BACKEND` (see `clusterkit.backends.base.Backend`).
"""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_POINTS = "clusterkit.backends"
DEFAULT = "slurm"
"""The default kind of a cluster."""


@dataclass(frozen=True)
class ClusterKind:
    """A kind: its backend's module, and its properties that settings need."""

    module: str
    here: bool = False
    """Whether jobs are processes on this machine, so that its clusters have no host."""


_BUILT_IN = {
    "slurm": ClusterKind("clusterkit.backends.slurm.backend"),
    "local": ClusterKind("clusterkit.backends.local.backend", here=True),
}


BUILT_IN = tuple(_BUILT_IN)
"""Their names."""


def find_kind(name: str) -> ClusterKind:
    """The kind with this name.

    Raises:
        ValueError: there is no such kind; the message lists all kinds.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    from importlib.metadata import entry_points

    added = {point.name: ClusterKind(point.value) for point in entry_points(group=ENTRY_POINTS)}
    if name not in added:
        *most, last = [repr(each) for each in (*_BUILT_IN, *sorted(added))]
        raise ValueError(f"must be {', '.join(most)} or {last}, not {name!r}")
    return added[name]
