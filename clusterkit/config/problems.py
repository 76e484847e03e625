"""Turns pydantic's findings into lines a user can act on: file, line, key, what is wrong, what is valid."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from clusterkit.config.layers import DEFAULT, Merged
from clusterkit.config.lines import Key, join_key
from clusterkit.config.options import NATIVE
from clusterkit.errors import ConfigError
from clusterkit.resources import page

_CLUSTER_KEYS = ("partition", "account", "qos", "constraint", "host", "root", "container", "image", "binds")
_EXPECTED = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "string_type": "must be text in quotes",
    "tuple_type": "must be a list",
    "dict_type": "must be a table",
    "mapping_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
}


def config_error(error: ValidationError, merged: Merged, root: type[BaseModel]) -> ConfigError:
    """One error for all findings, a line each, in the order of the files."""
    found: dict[Key, tuple[str, str | None]] = {}
    for detail in error.errors(include_url=False):
        key = _key_of(detail["loc"], merged.data)
        found.setdefault(key, _describe(detail, key, root))
    ordered = sorted(found, key=lambda key: (merged.origin(key).label, merged.origin(key).line or 0))
    lines = [f"{_place(key, merged)}{found[key][0]}" for key in ordered]
    hints = [hint for _, hint in found.values() if hint]
    if len(lines) == 1:
        return ConfigError(lines[0], hint=hints[0] if hints else f"see `{page('configuration.md')}`")
    return ConfigError("\n".join(lines), hint="correct these, then check the result with `clusterkit config`")


def _place(key: Key, merged: Merged) -> str:
    origin = merged.origin(key)
    where = "" if origin == DEFAULT else f"{origin}: "
    return f"{where}{join_key(key)}: " if key else where


def _key_of(location: tuple[int | str, ...], data: Mapping[str, Any]) -> Key:
    """The part of pydantic's location that names a key; list positions and the like are left out."""
    key: list[str] = []
    node: Any = data
    for part in location:
        if not isinstance(part, str) or not isinstance(node, Mapping) or part == "[key]":
            break
        key.append(part)
        node = node.get(part)
    return tuple(key)


def _describe(detail: ErrorDetails, key: Key, root: type[BaseModel]) -> tuple[str, str | None]:
    """What is wrong, and the hint to it."""
    kind, given = detail["type"], detail["input"]
    context = detail.get("ctx", {})
    match kind:
        case "extra_forbidden":
            return _unknown_key(key, root)
        case "missing":
            return "is missing", f"add it to [{join_key(key[:-1])}]; see `{page('configuration.md')}`"
        case "value_error":
            return str(context["error"]), None
        case "literal_error":
            return f"must be {context['expected']}, not {given!r}", None
        case "greater_than_equal":
            return f"must be at least {context['ge']}, not {given!r}", None
    if NATIVE in key[:-1]:
        return f"must be text, a whole number, true or false, not {given!r}", None
    hint = None
    if key[-1:] == ("program",) and kind == "tuple_type" and isinstance(given, str) and given.strip():
        hint = f"write it as a list of words: program = {json.dumps(given.split(), ensure_ascii=False)}"
    return f"{_EXPECTED.get(kind, detail['msg'])}, not {_shown(given)}", hint


def _shown(value: object) -> str:
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(list(value) if isinstance(value, tuple) else value)


def _unknown_key(key: Key, root: type[BaseModel]) -> tuple[str, str]:
    known = [name for name in _fields_at(key[:-1], root) if name != "name" or key[0] == "project"]
    valid = f"valid keys: {', '.join(sorted(known))}"
    if len(key) == 3 and key[0] == "profiles" and key[2] in _CLUSTER_KEYS:
        return (
            "belongs to the cluster; a profile never determines where it runs",
            f"write it in [clusters.NAME], or {key[2]} of one GPU type in [clusters.NAME.gpus.TYPE]",
        )
    close = difflib.get_close_matches(key[-1], known, n=1, cutoff=0.5)
    return ("unknown key" + (f"; did you mean {close[0]}?" if close else ""), valid)


def _fields_at(key: Key, root: type[BaseModel]) -> Sequence[str]:
    """Names that may stand in the table at `key`."""
    model: type[BaseModel] | None = root
    steps = iter(key)
    for part in steps:
        field = model.model_fields.get(part) if model else None
        if field is None:
            return ()
        model, keyed = _model_in(field.annotation)
        if keyed:
            next(steps, None)
    if model is None:
        return ()
    return [*model.model_fields, "extends"] if key[:1] == ("profiles",) else list(model.model_fields)


def _model_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model in a field's annotation, and whether it stands below a name of the user's choice."""
    keyed = get_origin(annotation) is dict
    inner = get_args(annotation)[-1] if keyed else annotation
    return (inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None), keyed
