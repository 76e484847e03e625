"""Kinds of clusters: the backend that carries out the jobs of each.

A package may add a kind: an entry point of the group `clusterkit.backends`, whose name is the kind and whose
value is a module with a `BACKEND` (see `clusterkit.backends.base.Backend`).
"""

from __future__ import annotations

from dataclasses import dataclass

ENTRY_POINTS = "clusterkit.backends"
DEFAULT = "slurm"
"""The kind of a cluster whose settings do not say."""


@dataclass(frozen=True)
class ClusterKind:
    """Where the backend of a kind is, and what the settings must know of it."""

    module: str
    here: bool = False
    """Jobs are processes of this machine, so a cluster of this kind has no host."""


_BUILT_IN = {
    "slurm": ClusterKind("clusterkit.backends.slurm.backend"),
    "local": ClusterKind("clusterkit.backends.local.backend", here=True),
}


BUILT_IN = tuple(_BUILT_IN)
"""Their names."""


def find_kind(name: str) -> ClusterKind:
    """The kind of a name.

    Raises:
        ValueError: there is no such kind; the message lists those that there are.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    from importlib.metadata import entry_points

    added = {point.name: ClusterKind(point.value) for point in entry_points(group=ENTRY_POINTS)}
    if name not in added:
        *most, last = [repr(each) for each in (*_BUILT_IN, *sorted(added))]
        raise ValueError(f"must be {', '.join(most)} or {last}, not {name!r}")
    return added[name]
