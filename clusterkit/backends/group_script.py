"""Renders the job scripts of groups, for every backend. Pure.

`templates/group.sh.j2` holds the script, which starts the job scripts of the group's members.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends.base import backend_of
from clusterkit.backends.job_script import prelude, templates
from clusterkit.backends.jobs import DOUBTFUL, PATIENCE_SECONDS, group_log
from clusterkit.exit_codes import REQUEUE_CODE
from clusterkit.ownership import EXIT_CODE

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_FULL = "(QOS|Assoc)[A-Za-z]*Submit|temporarily unable to accept|[Dd]enied"
"""Refusals of sbatch that end when jobs of the user have ended, or on a node that may submit."""


@dataclass(frozen=True, kw_only=True)
class GroupScript:
    """The contents of the job script of one part of a group. Paths are absolute on the cluster."""

    job_name: str
    group_dir: str
    cluster: Cluster
    """Whose shell lines may put the NVIDIA MPS commands on PATH, too."""
    part: int
    origin: int
    """Number, within the group, of the job array's task 0."""
    first: int
    """Number, within the group, of the part's first task: the task of a job without an array."""
    pack: int
    """Runs per task, which share its GPU."""
    options: tuple[str, ...] = ()
    """The backend's options."""
    array: bool = False
    """Whether the part is a job array."""
    requeue: bool = False
    """Whether a pack is requeued when one of its runs wants to continue."""
    mps: bool = False
    """Whether the runs of a pack use its GPU through NVIDIA MPS."""
    fed: bool = False
    """Whether its jobs submit what of the group does not fit into the queue."""
    scratch_root: str | None = None
    """The node's folder where runs trained by one process meet; None without such runs."""


def render_group(job: GroupScript) -> str:
    """Returns the script's text: bash 4, ASCII except for the values.

    Raises:
        ConfigError: an option cannot be written into a script.
    """
    log = group_log(job.part, "%a" if job.array else None)
    backend = backend_of(job.cluster)
    directives = backend.directives(job.options, job_name=job.job_name, folder=job.group_dir, log=log)
    return _group_text("group.sh.j2", job, directives=directives, prelude=prelude(job.cluster.prelude))


def render_task(job: GroupScript) -> str:
    """Returns the text of task.sh, which starts the runs of any task of a group that is fed."""
    return _group_text("task.sh.j2", job, prelude=prelude(job.cluster.prelude))


def render_feed(job: GroupScript) -> str:
    """Returns the text of feed.sh, which submits what of a group does not fit into the queue."""
    return _group_text("feed.sh.j2", job, full=_FULL, doubtful=DOUBTFUL, patience=round(PATIENCE_SECONDS))


def _group_text(template: str, job: GroupScript, **values: object) -> str:
    return (
        templates()
        .get_template(template)
        .render(job=job, requeue_code=REQUEUE_CODE, unsafe_code=EXIT_CODE, **values)
    )
