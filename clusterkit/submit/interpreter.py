"""Finds the Python that `python` of a user's own program means on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.config.permission import INTERPRETERS

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_TRAINER = ["-m", "trainer"]


def with_program_python(cluster: Cluster, argv: Sequence[str], project: Path) -> Cluster:
    """Returns the cluster with the interpreter that starts a program on this machine.

    clusterkit may be installed in an environment of its own, which lacks what the program imports. A cluster
    that sets `python`, the bundled trainer and every other machine keep what they have.

    Args:
        cluster: where the program runs.
        argv: of the program.
        project: the project's folder.
    """
    program, module = list(argv[:1]), list(argv[1:3])
    if not cluster.here or cluster.container != "none" or cluster.python:
        return cluster
    if program != ["python"] or module == _TRAINER:
        return cluster
    return cluster.model_copy(update={"python": project_python(project) or path_python() or sys.executable})


def project_python(project: Path) -> str | None:
    """Returns the interpreter of the active environment, or else of the project's `.venv` or `venv`."""
    active = os.environ.get("VIRTUAL_ENV")
    files = [*([Path(active, "bin", "python")] if active else []), *(project / name for name in INTERPRETERS)]
    return next((str(file) for file in files if os.access(file, os.X_OK)), None)


def path_python() -> str | None:
    """Returns the interpreter that a shell would start, as an absolute path."""
    found = shutil.which("python") or shutil.which("python3")
    return found and os.path.abspath(found)  # noqa: PTH100 - a link to an environment's Python stays one
