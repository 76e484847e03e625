"""Values that clusterkit starts, or hands to ssh, on this machine: given out once they are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import GetPydanticSchema, ValidationInfo
from pydantic_core import core_schema

from clusterkit.config.layers import Table
from clusterkit.config.lines import Key
from clusterkit.config.permission import HELD, Permission
from clusterkit.config.values import LocalPath, Program
from clusterkit.folders import home_or_root


class Written(NamedTuple):
    """A value of a settings document, before it is checked."""

    value: object
    key: Key
    permission: Permission


@dataclass(frozen=True)
class LocalProgram:
    """Argv of a program of this machine."""

    argv: tuple[str, ...]
    """To be shown only; `allowed` gives what may be started."""
    key: Key = ()
    permission: Permission | None = None
    """None if no settings file names it."""

    def allowed(self) -> tuple[str, ...]:
        """Returns the argv.

        Raises:
            NotAllowedError: the project names it, and the user has not allowed it.
        """
        if self.permission is not None:
            self.permission.require([self.key])
        return self.argv

    @property
    def folder(self) -> Path:
        """Where it starts: in the project if that names it, else in the home folder."""
        named = self.permission is not None and self.key in self.permission.programs
        return self.permission.folder if self.permission and named else home_or_root()


@dataclass(frozen=True)
class SshConfig:
    """An ssh configuration, which can name programs of this machine."""

    path: Path
    """To be shown only; `allowed` gives what ssh may read."""
    key: Key = ()
    permission: Permission | None = None
    """None if no settings file names it."""

    def allowed(self) -> Path:
        """Returns the path.

        Raises:
            NotAllowedError: it is the project's, and the user has not allowed it.
        """
        if self.permission is not None:
            self.permission.require([self.key])
        return self.path


def written(document: Table, permission: Permission) -> Table:
    """Returns a settings document whose held values know where they were written."""

    def inner(table: Any, at: Key, patterns: list[Key]) -> Any:
        if not isinstance(table, Mapping):
            return table
        copy = dict(table)
        for name, value in table.items():
            rest = [pattern[1:] for pattern in patterns if pattern[0] in (name, "*")]
            if () in rest:
                copy[name] = Written(value, (*at, name), permission)
            elif rest:
                copy[name] = inner(value, (*at, name), rest)
        return copy

    return dict(inner(document, (), list(HELD)))


def _held(kind: type[LocalProgram | SshConfig], value_type: Any) -> GetPydanticSchema:
    """A schema that checks a value as `value_type` and wraps it."""

    def wrap(value: object, check: core_schema.ValidatorFunctionWrapHandler, info: ValidationInfo) -> object:
        if isinstance(value, kind):
            return value
        if isinstance(value, Written):
            return kind(check(value.value), value.key, value.permission)
        if (info.context or {}).get("of_files"):
            raise AssertionError("a held value of a settings file says where it was written")
        return kind(check(value))

    return GetPydanticSchema(
        lambda _, handler: core_schema.with_info_wrap_validator_function(wrap, handler(value_type))
    )


ProgramHere = Annotated[LocalProgram, _held(LocalProgram, Program)]
SshConfigHere = Annotated[SshConfig, _held(SshConfig, LocalPath)]
