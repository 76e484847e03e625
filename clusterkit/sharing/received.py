"""Validates a received archive's description of a run before it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.submission import Submission
from clusterkit.errors import RunError
from clusterkit.results.pull import RUN_ID
from clusterkit.runs.program import TOTAL_STEPS, option_of, trains
from clusterkit.runs.spec import RunSpec
from clusterkit.sharing.archive import TREES
from clusterkit.snapshots.copy import listed
from clusterkit.units import format_duration, format_size

if TYPE_CHECKING:
    from clusterkit.config.models import Profile

_SNAPSHOT = re.compile(r"[0-9a-f]{16}")
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
    """Returns the size limit, in bytes, of a file that describes the archive; None for any other file."""
    return _SMALL if _DESCRIBING.fullmatch(name) else None


def sizes_of(root: Path, spec: RunSpec) -> dict[str, int]:
    """Returns the size in bytes of every file and link that a run needs, by its path in the archive.

    Args:
        root: the archive's folder, with the files that describe it.
        spec: its validated run.

    Raises:
        RunError: the manifest of a snapshot is missing or damaged.
    """
    sizes = {}
    for place, identity in zip(TREES, spec.trees, strict=False):
        for name, entry in listed(root / place, identity).items():
            sizes[f"{place}/{name}"] = entry.bytes
    image = spec.stored_image
    return sizes | ({f"image/{image.name}": image.bytes} if image else {})


def check_received(spec: RunSpec, newest: Submission) -> Profile:
    """Validates the values that go into paths, job scripts and scheduler options.

    Args:
        spec: a run.
        newest: its newest submission.

    Returns:
        The profile, validated like one from a settings file.

    Raises:
        RunError: a value is missing or invalid.
    """
    from clusterkit.config.models import Profile

    newest.whole("the archive")
    try:
        table = {name: value for name, value in spec.profile.items() if name in Profile.model_fields}
        written = {
            name: _WRITTEN[name](value) if name in _WRITTEN and value is not None else value
            for name, value in table.items()
        }
        profile = Profile.model_validate(written)
        program = spec.program(newest, "")
        steps = option_of(program.argv, "--total-steps") if trains(program.argv) else None
        sound = {
            "run_id": RUN_ID.fullmatch(spec.run_id),
            "workdir and python_path": all(map(_SNAPSHOT.fullmatch, spec.trees)),
            "template": spec.template != (),
            "snapshot": isinstance(spec.snapshot.get("diff") or "", str),
            "recipe": isinstance((spec.recipe or {}).get("name", ""), str),
            "seed": spec.seed is None or spec.seed >= 0,
            "total_steps": spec.total_steps is None or spec.total_steps >= 0,
            "steps of the arguments": 0 <= int(steps or program.env.get(TOTAL_STEPS) or 0) < 1 << 63,
            "submission": newest.pack >= 0,
        }
        json.dumps([asdict(spec), asdict(newest)], ensure_ascii=False).encode("utf-8", "surrogateescape")
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise RunError(f"the archive's run.json was not written by clusterkit: {_line(error)}") from error
    wrong = [name for name, right in sound.items() if not right]
    if wrong:
        raise RunError(f"the archive's run.json was not written by clusterkit: {', '.join(wrong)}")
    return profile


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
