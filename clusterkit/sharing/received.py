"""Validates a received archive's description of a run before it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit.errors import RunError
from clusterkit.results.pull import RUN_ID
from clusterkit.runs.program import TOTAL_STEPS, option_of, trains
from clusterkit.runs.spec import snapshot_ids
from clusterkit.snapshots.copy import listed
from clusterkit.units import format_duration, format_size

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_SNAPSHOT, _DIGEST = re.compile(r"[0-9a-f]{16}"), re.compile(r"[0-9a-f]{64}")
_DESCRIBING = re.compile(
    r"run/run\.json|run/submissions/[0-9]{1,9}/(request\.json|status)|(code|trainer)/manifest\.gz"
)
_SMALL = 16 << 20
"""Bytes."""
_WRITTEN: Mapping[str, Callable[[int], str]] = {
    **dict.fromkeys(("memory", "scratch"), format_size),
    **dict.fromkeys(("time", "signal_before"), format_duration),
}
"""The settings-file notation of values that run.json stores as numbers."""


def describes(name: str) -> int | None:
    """The size limit, in bytes, of a file that describes the archive; None for any other file."""
    return _SMALL if _DESCRIBING.fullmatch(name) else None


def sizes_of(root: Path, document: Mapping[str, Any]) -> dict[str, int]:
    """The size in bytes of every file and link that a run needs, by its path in the archive.

    Args:
        root: the archive's folder, with the files that describe it.
        document: its validated run.json.

    Raises:
        RunError: the manifest of a snapshot is missing or damaged.
    """
    sizes = {}
    for place, identity in zip(("code", "trainer"), snapshot_ids(document), strict=True):
        for name, entry in listed(root / place, identity).items():
            sizes[f"{place}/{name}"] = entry.bytes
    image = document["image"]
    return sizes | ({f"image/sha256-{image['digest']}.sif": image["bytes"]} if image else {})


def check_document(document: Mapping[str, Any], request: Mapping[str, Any]) -> Profile:
    """Validate the fields that go into paths, job scripts and scheduler options.

    Args:
        document: run.json.
        request: request.json of the newest submission.

    Returns:
        The profile, validated like one from a settings file.

    Raises:
        RunError: a field is missing or invalid.
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
        sweep = document.get("sweep")
        sound = {
            "run_id": RUN_ID.fullmatch(document["run_id"]),
            "name": isinstance(document["name"], str),
            "workdir and python_path": all(_SNAPSHOT.fullmatch(one) for one in snapshot_ids(document)),
            "argv": _words(document["argv"]) and _words(request.get("argv") or document["argv"]),
            "template": document.get("template") is None or _words(document["template"]),
            "env": _texts(document["env"]) and _texts(request.get("env") or {}),
            "image": image is None or _DIGEST.fullmatch(image["digest"]),
            "bytes of the image": image is None or _count(image["bytes"]),
            "recipe": recipe is None or isinstance(recipe.get("name", ""), str),
            "seed": document["seed"] is None or _count(document["seed"]),
            "total_steps": steps is None or _count(steps),
            "steps of the arguments": _count(int(_steps(document, request) or 0)),
            "sweep": sweep is None or _texts(sweep),
            "submission": isinstance(request.get("options", []), list) and _count(request.get("pack") or 1),
        }
        json.dumps([document, request], ensure_ascii=False).encode("utf-8", "surrogateescape")
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunError(f"the archive's run.json was not written by clusterkit: {_line(error)}") from error
    wrong = [name for name, right in sound.items() if not right]
    if wrong:
        raise RunError(f"the archive's run.json was not written by clusterkit: {', '.join(wrong)}")
    return profile


def _steps(document: Mapping[str, Any], request: Mapping[str, Any]) -> str | None:
    argv, env = request.get("argv") or document["argv"], request.get("env") or document["env"]
    return option_of(argv, "--total-steps") if trains(argv) else env.get(TOTAL_STEPS)


def _count(value: object) -> bool:
    """Whether a value is a non-negative integer that the ledger can store."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _words(value: object) -> bool:
    return isinstance(value, list) and value != [] and all(isinstance(word, str) for word in value)


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
