"""Copies of a class's methods with other objects under their module-level names.

The class, its module and its functions stay as they are: only the copies look names up in a private
dictionary.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any


class Rebinding:
    """Copies the methods of one class for a class that is yet to be made.

    Args:
        source: the class whose methods are copied.
        names: replacement objects by module-level name; names that the source's module does not use
            are ignored.
    """

    def __init__(self, source: type, names: Mapping[str, Any]) -> None:
        self._source = source
        self._names = names
        self._globals: dict[int, dict[str, Any]] = {}
        self._class_cell = types.CellType()

    def methods(self, leave: Callable[[str], bool]) -> dict[str, Any]:
        """Returns copies of methods, static methods and read-only properties, save those `leave` names."""
        return {
            name: self._copy(member)
            for name, member in vars(self._source).items()
            if not leave(name) and isinstance(member, types.FunctionType | staticmethod | property)
        }

    def bind(self, made: type) -> None:
        """Makes `super()` and the source's own name mean the class made of the copies."""
        self._class_cell.cell_contents = made
        for private in self._globals.values():
            if self._source.__name__ in private:
                private[self._source.__name__] = made

    def _copy(self, member: Any) -> Any:
        if isinstance(member, property):
            return property(self._function(member.fget), doc=member.__doc__)
        if isinstance(member, staticmethod):
            return staticmethod(self._function(member.__func__))
        return self._function(member)

    def _function(self, original: Any) -> types.FunctionType:
        cells = zip(original.__code__.co_freevars, original.__closure__ or (), strict=True)
        copy = types.FunctionType(
            original.__code__,
            self._private(original.__globals__),
            original.__name__,
            original.__defaults__,
            tuple(self._cell(name, cell) for name, cell in cells),
        )
        copy.__kwdefaults__ = original.__kwdefaults__
        copy.__doc__ = original.__doc__
        return copy

    def _cell(self, name: str, cell: types.CellType) -> types.CellType:
        if name == "__class__":
            return self._class_cell
        held = cell.cell_contents
        return types.CellType(self._function(held)) if isinstance(held, types.FunctionType) else cell

    def _private(self, shared: dict[str, Any]) -> dict[str, Any]:
        if id(shared) not in self._globals:
            self._globals[id(shared)] = {**shared, **self._names}
        return self._globals[id(shared)]
