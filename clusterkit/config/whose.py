"""Checks that a settings file found by search is the user's own, because it runs programs as them.

It may have come with a pulled run, or be in a folder that others can write to, such as /tmp.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

from clusterkit.config.sources import display_path, find_project_file
from clusterkit.errors import ConfigError
from clusterkit.untrusted import DOCUMENT_BYTES, parse_object, read_limited

_NOBODY = 65534
"""The owner that a file system reports if it is unknown."""


def refuse_foreign(file: Path, start: Path) -> None:
    """Refuses a project's settings file of another user, or one among results.

    Root, as in a container, also accepts files of the current folder's owner.

    Args:
        file: absolute.
        start: where the search for it began.

    Raises:
        ConfigError: it is not the user's.
    """
    hint = f"only if you trust it: --config {display_path(file)}"
    mine = {os.geteuid(), 0, _NOBODY} | ({start.stat().st_uid} if os.geteuid() == 0 else set())
    for path in (file.parent, file):
        owner = path.lstat().st_uid
        if owner not in mine:
            raise ConfigError(f"{path} belongs to another user (number {owner}): not read", hint=hint)
    folder = file.parent
    if _in_results(folder) or any(map(_is_run, (folder, *folder.parents))):
        raise ConfigError(f"{display_path(file)}: not read, as it came with results", hint=hint)


def _is_run(folder: Path) -> bool:
    data = read_limited(folder / "run.json", DOCUMENT_BYTES)
    return data is not None and isinstance((parse_object(data) or {}).get("run_id"), str)


def _in_results(folder: Path) -> bool:
    """Whether a project further up keeps its results there."""
    file = find_project_file(folder.parent)
    if file is None:
        return False
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8-sig")).get("project", {})
        named = project.get("results", "results")
        results = (file.parent / Path(named).expanduser()).resolve()
    except (OSError, ValueError, TypeError, AttributeError, RuntimeError):
        return False  # its own settings are not ours to judge
    return folder.is_relative_to(results) and not file.parent.is_relative_to(results)
