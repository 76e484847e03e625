"""Allows what a test's own project names for this machine, as its user would."""

import os
import tempfile
from functools import cache
from pathlib import Path

from clusterkit.config.settings import load_settings

VARIABLE = "XDG_STATE_HOME"


def allow(project: Path) -> None:
    """Does what `clusterkit config allow` does in a project folder."""
    os.environ |= state()
    load_settings(config=project / "clusterkit.toml").permission.allow()


def state() -> dict[str, str]:
    """The variable that says where permissions are kept, for an environment of one's own: never at home."""
    return {VARIABLE: os.environ.get(VARIABLE) or _folder().name}


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """For benchmarks; the tests have a folder from `conftest.py`."""
    return tempfile.TemporaryDirectory()
