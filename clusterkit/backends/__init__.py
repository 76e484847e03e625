"""Schedulers: one protocol, and one package for each implementation of it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from clusterkit.config.kinds import find_kind

if TYPE_CHECKING:
    from clusterkit.backends.base import Backend
    from clusterkit.config.models import Cluster


def backend_of(cluster: Cluster) -> Backend:
    """Returns the backend of a cluster."""
    return backend_of_kind(cluster.kind)


@cache
def backend_of_kind(kind: str) -> Backend:
    """Returns the backend of a kind of cluster.

    Raises:
        ValueError: there is no such kind.
    """
    backend: Backend = import_module(find_kind(kind).module).BACKEND
    return backend
