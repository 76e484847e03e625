"""The types of settings values, as pydantic annotations shared by all models.

Validators raise ValueError with a phrase that continues "file:line: key: ". Values that clusterkit starts, or
hands to ssh, on this machine are given out once they are allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetPydanticSchema,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import core_schema

from clusterkit.config.exposure import assigned_secret, names_secret
from clusterkit.config.layers import Table
from clusterkit.config.lines import Key
from clusterkit.config.options import SHOWN, long_name
from clusterkit.config.permission import HELD, Permission
from clusterkit.folders import home_or_root, local_path
from clusterkit.hardware import ARCHITECTURES, machine_name
from clusterkit.trackers import tracker_named
from clusterkit.units import DURATION_EXAMPLES, SIZE_EXAMPLES, parse_duration, parse_size

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Control characters, those for the direction of text included."""


def _size(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a size; write text with a unit, e.g. {SIZE_EXAMPLES}")
    return parse_size(value)


def _duration(value: object) -> object:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a duration; write text with a unit, e.g. {DURATION_EXAMPLES}")
    return parse_duration(value)


def _positive(value: int) -> int:
    if value <= 0:
        raise ValueError("must be more than zero")
    return value


def as_tuple(value: object) -> object:
    """A list of a settings file as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _not_empty(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise ValueError("is empty; leave the key out instead")
    return value


def _one_line(value: str) -> str:
    if _CONTROL.search(value):
        raise ValueError(f"{value!r} contains a line break or another control character")
    return value


def _local_path(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str | Path):
        raise ValueError(f"{value!r} is not a path; write text")
    if value == "":
        raise ValueError("is empty; leave the key out instead")
    return local_path(str(value), (info.context or {}).get("project_dir", "."))


def _with_names(value: object) -> object:
    """Pairs the values of a table with their keys, which pydantic does not show to a validator of values."""
    return {key: (key, text) for key, text in value.items()} if isinstance(value, dict) else value


def _tracker_place(named: tuple[str, object], info: ValidationInfo) -> str:
    name, text = named
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a place of a tracker; write text")
    return tracker_place(name, text, (info.context or {}).get("project_dir", "."))


def tracker_place(name: str, text: str, folder: str | Path) -> str:
    """Returns where a tracker logs to.

    Args:
        name: of the tracker.
        text: as the user wrote it.
        folder: where relative paths start.

    Raises:
        ValueError: there is no such tracker, or it has no such place.
    """
    tracker = tracker_named(name)
    if not text:
        raise ValueError("is empty; leave the key out instead")
    return tracker.place(_one_line(text), Path(folder))


def _by_partition(value: object) -> object:
    return {"*": value} if isinstance(value, str) else value


def _architecture(value: str) -> str:
    known = machine_name(value)
    if known not in (*ARCHITECTURES, "any"):
        raise ValueError(f"{value!r} is no architecture; use {', '.join(ARCHITECTURES)} or any")
    return known


def _name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError("is not a name; use letters, digits, dots, dashes and underscores")
    return value


def _environment_name(value: str) -> str:
    if not _ENVIRONMENT_NAME.fullmatch(value):
        raise ValueError("is not a name of an environment variable")
    return value


def _open_name(value: str) -> str:
    if names_secret(value):
        raise ValueError("looks like a secret and would be written to run.json; name it in [secrets] instead")
    return value


def _shell_line(value: str) -> str:
    if name := assigned_secret(value):
        raise ValueError(f"{name} looks like a secret; it would be written to job.sh in plain text")
    return value


def _option_name(value: str) -> str:
    long_name(value)
    return value


def _option_value(value: str | int | bool) -> str | int | bool:
    if value == "":
        raise ValueError("is empty; write true for an option without a value, false to remove it")
    if isinstance(value, str) and (name := assigned_secret(value)):
        raise ValueError(f"{name} looks like a secret; {SHOWN}")
    return _one_line(value) if isinstance(value, str) else value


def _text(pattern: str, *examples: str) -> WithJsonSchema:
    """What an editor may know of a value: it is text of this form."""
    known = {"examples": [*examples]} if examples else {}
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern}$", **known})


_SIZE_TEXT = r"\s*\d+(\.\d+)?\s*[KMGTkmgt](i?[Bb])?\s*"
_DURATION_TEXT = r"\s*((\d+-)?\d+:[0-5]\d:[0-5]\d|(\d+[dD])?(\d+[hH])?(\d+[mM])?(\d+[sS])?)\s*"
Size = Annotated[int, BeforeValidator(_size), AfterValidator(_positive), _text(_SIZE_TEXT, "64G")]
"""Bytes; written as text such as "64G"."""
Duration = Annotated[int, BeforeValidator(_duration), AfterValidator(_positive), _text(_DURATION_TEXT, "4h")]
"""Seconds; written as text such as "4h"."""
Line = Annotated[str, AfterValidator(_one_line)]
"""Text without control characters."""
Lines = Annotated[tuple[Line, ...], BeforeValidator(as_tuple)]
ShellLines = Annotated[tuple[Annotated[Line, AfterValidator(_shell_line)], ...], BeforeValidator(as_tuple)]
"""Lines of a shell script."""
Program = Annotated[Lines, AfterValidator(_not_empty)]
"""Argv of a program."""
LocalPath = Annotated[Path, BeforeValidator(_local_path)]
"""A path on this machine, see `local_path`; a relative one starts at the project folder."""
TrackerPlaces = Annotated[
    dict[str, Annotated[str, BeforeValidator(_tracker_place)]], BeforeValidator(_with_names)
]
"""Where to log to, by the names of trackers; a relative path starts at the project folder."""
Architectures = Annotated[
    Mapping[Line, Annotated[str, AfterValidator(_architecture)]],
    BeforeValidator(_by_partition),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]}
    ),
]
"""What `uname -m` says on nodes, by partition; text alone is that of `*`."""
Name = Annotated[str, AfterValidator(_name), _text(_NAME.pattern)]
EnvironmentName = Annotated[str, AfterValidator(_environment_name), _text(_ENVIRONMENT_NAME.pattern)]
Environment = Mapping[Annotated[EnvironmentName, AfterValidator(_open_name)], Line]
NativeOptions = Mapping[
    Annotated[str, AfterValidator(_option_name)], Annotated[bool | int | str, AfterValidator(_option_value)]
]
"""Options of the scheduler: text or a number is a value, true makes a flag, false removes the option."""


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


class SettingsModel(BaseModel):
    """Base of all settings: unknown keys are errors, nothing is converted, nothing changes later."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
