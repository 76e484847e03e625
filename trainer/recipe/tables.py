"""The TOML tables below `recipes/`: schemas and benchmarks, with the names in them."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from trainer.recipe.errors import RecipeError

DIRECTORY = Path(__file__).resolve().parent.parent / "recipes"


@cache
def read_table(name: str) -> dict[str, Any]:
    """Reads `recipes/<name>.toml`."""
    return tomllib.loads((DIRECTORY / f"{name}.toml").read_text(encoding="utf-8"))


def task_names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Expands benchmark sets (`MT10`, `MT25`, `MT50`) and short names (`reach`) to Meta-World's full names.

    The order given is kept, since it is the order of the task ids.

    Raises:
        RecipeError: an unknown task (with the nearest names), one named twice, or none.
    """
    sets = read_table("benchmarks/metaworld")
    tasks: list[str] = []
    for name in [value] if isinstance(value, str) else value:
        full = name if name.endswith("-v3") else f"{name}-v3"
        if name not in sets and full not in sets["MT50"]:
            raise RecipeError(f"unknown Meta-World task {name!r}{nearest(full, [*sets, *sets['MT50']])}")
        tasks += sets.get(name, [full])
    twice = sorted({name for name in tasks if tasks.count(name) > 1})
    if twice or not tasks:
        raise RecipeError(f"tasks named twice: {', '.join(twice)}" if twice else "no task is named")
    return tuple(tasks)


def nearest(name: str, names: Iterable[str]) -> str:
    """Returns the end of a message about an unknown name: the known ones that resemble it, if any do."""
    close = difflib.get_close_matches(name, list(names), n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else ""
