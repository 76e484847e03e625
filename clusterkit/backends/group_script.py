"""Renders the job script of a group of runs, which starts the job scripts of its members. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from clusterkit.backends.base import Backend
from clusterkit.backends.job_script import templates
from clusterkit.backends.jobs import group_log
from clusterkit.exit_codes import REQUEUE_CODE
from clusterkit.ownership import EXIT_CODE


@dataclass(frozen=True, kw_only=True)
class GroupScript:
    """Everything the job script of one part of a group says. Paths are absolute paths of the cluster."""

    job_name: str
    group_dir: str
    part: int
    origin: int
    """Number, in the group, of the task that is task 0 of the job array."""
    first: int
    """Number of the part's first task in the group: that of a job that is no array."""
    pack: int
    """Runs a task; they share its GPU."""
    options: tuple[str, ...] = ()
    """The backend's options."""
    array: bool = False
    """Whether the part is a job array."""
    requeue: bool = False
    """Whether a pack is requeued when a run of it wants to go on."""
    mps: bool = False
    """Whether the runs of a pack use its GPU through NVIDIA MPS."""
    prelude: tuple[str, ...] = ()
    """Shell lines of the cluster, which may be what puts the command of NVIDIA MPS on PATH."""
    scratch_root: str | None = None
    """Where the runs of a pack meet that one process trains: a folder of the node; None without such."""
    trust: tuple[str, ...] = ()
    """Users who may own, and groups who may write to, the folders of the runs."""
    group: str | None = None
    """One more such group."""


def render_group(job: GroupScript, backend: Backend) -> str:
    """The text of the script: valid bash 4, ASCII but for the values.

    Raises:
        ConfigError: an option cannot be written into a script.
    """
    log = group_log(job.part, "%a" if job.array else None)
    return (
        templates()
        .get_template("group.sh.j2")
        .render(
            job=job,
            directives=backend.directives(job.options, job_name=job.job_name, folder=job.group_dir, log=log),
            requeue_code=REQUEUE_CODE,
            unsafe_code=EXIT_CODE,
        )
    )
