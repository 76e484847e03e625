"""Container runtimes: a class for each way to start a program, found by the value of the setting `container`.

A package may add one: an entry point of the group `clusterkit.runtimes`, whose name is that value and whose
value is a module with a `RUNTIME` (see `clusterkit.runtimes.base.Runtime`).
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from clusterkit.runtimes.apptainer import Apptainer
from clusterkit.runtimes.base import NoContainer, Runtime
from clusterkit.runtimes.pyxis import Pyxis

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS = "clusterkit.runtimes"
BUILDER = Apptainer("apptainer")
"""The default, and the one whose images `clusterkit build` makes."""
NONE = NoContainer()

_BUILT_IN: dict[str, Runtime] = {
    runtime.name: runtime for runtime in (BUILDER, Apptainer("singularity"), Pyxis(), NONE)
}
BUILT_IN = tuple(_BUILT_IN)
"""Their names."""


@cache
def runtime_of(name: str) -> Runtime:
    """Returns the runtime with this name.

    Raises:
        ValueError: there is no such runtime; the message lists all of them.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name]
    added = {point.name: point for point in _added()}
    if name not in added:
        *most, last = map(repr, (*_BUILT_IN, *added))
        raise ValueError(f"must be {', '.join(most)} or {last}, not {name!r}")
    runtime: Runtime = added[name].load().RUNTIME
    return runtime


@cache
def all_runtimes() -> tuple[Runtime, ...]:
    """Returns the built-in runtimes and those that packages add, except those that cannot be loaded."""
    added: list[Runtime] = []
    for point in _added():
        with suppress(Exception):  # whatever is wrong with it, most commands are not about it
            added.append(point.load().RUNTIME)
    return (*_BUILT_IN.values(), *added)


def _added() -> list[EntryPoint]:
    from importlib.metadata import entry_points

    return sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
