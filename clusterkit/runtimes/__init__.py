"""Container runtimes: a class for each way to start a program, found by the value of the setting `container`.

A package may add one: an entry point of the group `clusterkit.runtimes`, whose value is a module with a
`RUNTIME` (see `clusterkit.runtimes.base.Runtime`).
"""

from __future__ import annotations

from functools import cache

from clusterkit.runtimes.apptainer import Apptainer
from clusterkit.runtimes.base import NoContainer, Runtime
from clusterkit.runtimes.pyxis import Pyxis

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
    runtimes = _BUILT_IN if name in _BUILT_IN else {runtime.name: runtime for runtime in all_runtimes()}
    if name not in runtimes:
        *most, last = map(repr, runtimes)
        raise ValueError(f"must be {', '.join(most)} or {last}, not {name!r}")
    return runtimes[name]


@cache
def all_runtimes() -> tuple[Runtime, ...]:
    """Returns the built-in runtimes and those that packages add."""
    from importlib.metadata import entry_points

    added = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return (*_BUILT_IN.values(), *(point.load().RUNTIME for point in added))
