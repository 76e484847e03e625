"""Checks what an archive from somebody else says of a run, before anything is made of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from clusterkit.errors import RunError
from clusterkit.sharing.contents import snapshot_ids
from clusterkit.units import format_duration, format_size

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_SNAPSHOT, _DIGEST = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}")
_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_WRITTEN: Mapping[str, Callable[[int], str]] = {
    **dict.fromkeys(("memory", "scratch"), format_size),
    **dict.fromkeys(("time", "signal_before"), format_duration),
}
"""How a settings file has the values that run.json has as numbers."""


def check_document(document: Mapping[str, Any], request: Mapping[str, Any]) -> Profile:
    """Check the parts that paths, job scripts and the scheduler's options are made of.

    Args:
        document: run.json.
        request: request.json of the newest submission.

    Returns:
        The profile, checked as if it stood in a settings file.

    Raises:
        RunError: something is missing or is not what it must be.
    """
    from clusterkit.config.models import Profile

    try:
        table = {name: value for name, value in document["profile"].items() if name in Profile.model_fields}
        written = {
            name: _WRITTEN[name](value) if name in _WRITTEN and value is not None else value
            for name, value in table.items()
        }
        profile = Profile.model_validate(written)
        image, recipe, steps = document["image"], document["recipe"], document["total_steps"]
        sound = {
            "run_id": _RUN_ID.fullmatch(document["run_id"]),
            "name": isinstance(document["name"], str),
            "workdir and python_path": all(_SNAPSHOT.fullmatch(one) for one in snapshot_ids(document)),
            "argv": _words(document["argv"]) and _words(request.get("argv") or document["argv"]),
            "template": document.get("template") is None or _words(document["template"]),
            "env": _texts(document["env"]) and _texts(request.get("env") or {}),
            "image": image is None or _DIGEST.fullmatch(image["digest"]),
            "bytes of the image": image is None or isinstance(image["bytes"], int),
            "recipe": recipe is None or isinstance(recipe.get("name", ""), str),
            "seed": isinstance(document["seed"], int | None),
            "total_steps": isinstance(steps, int | None),
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RunError(f"run.json of the archive is none of clusterkit's: {_line(error)}") from error
    wrong = [name for name, right in sound.items() if not right]
    if wrong:
        raise RunError(f"run.json of the archive is none of clusterkit's: {', '.join(wrong)}")
    return profile


def _words(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(word, str) for word in value)


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
