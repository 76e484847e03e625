"""Writes docs/clusterkit.schema.json from the models of settings: what an editor may know of their files.

    python -m docs.tools.schema

A settings file is one layer of several: no key is required, and a profile may extend another one.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clusterkit.config import models
from clusterkit.config.values import SettingsModel

PATH = Path(__file__).resolve().parent.parent / "clusterkit.schema.json"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
_OF_THE_TABLE = {"Cluster": "name", "Profile": "name"}
"""Keys of models that no file may set: their tables have them."""
_LEFT_OUT = ("format", "required", "title")
_UNITS = re.compile(r",? in (?:bytes|seconds)\b| \(bytes\)")
"""Of the values in the models; in a file they are text with a unit."""


def schema() -> dict[str, Any]:
    """Returns the schema, of JSON Schema's draft 2020-12."""
    made = models.Document.model_json_schema(mode="validation")
    of_all = {"Document": made, **made["$defs"]}
    for model in SettingsModel.__subclasses__():
        _describe(of_all[model.__name__], model)
    for name, key in _OF_THE_TABLE.items():
        del of_all[name]["properties"][key]
    extends = {"type": "string", "description": "The profile whose values this one has where it sets none."}
    of_all["Profile"]["properties"]["extends"] = extends
    made["description"] = "Settings of clusterkit: clusterkit.toml, or the user's own file."
    return {"$schema": DRAFT, **_of_files(made)}


def text() -> str:
    """Returns the file's text."""
    return json.dumps(schema(), indent=2) + "\n"


def _describe(part: dict[str, Any], model: type[BaseModel]) -> None:
    """Adds the words below each field to its key."""
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    for field, words in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(words, ast.Expr)
            and isinstance(words.value, ast.Constant)
        ):
            plain = _UNITS.sub("", " ".join(str(words.value.value).split()))
            part["properties"][field.target.id]["description"] = plain.replace("None", "leaving it out")


def _of_files(part: Any) -> Any:
    """Leaves out what is not so in a file of TOML: titles, required keys, nulls, formats of paths."""
    if isinstance(part, list):
        return [_of_files(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _of_files(value) for key, value in part.items() if key not in _LEFT_OUT}
    if "default" in kept and kept["default"] is None:
        del kept["default"]
    choices = [one for one in kept.pop("anyOf", []) if one != {"type": "null"}]
    kept |= choices[0] if len(choices) == 1 else {"anyOf": choices} if choices else {}
    return kept | ({"additionalProperties": False} if "patternProperties" in kept else {})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
