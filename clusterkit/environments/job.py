"""The script that builds an environment apart from a run, or asks its Python what fits it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.backends.job_script import JobScript, render_environment
from clusterkit.backends.submission import Submission
from clusterkit.environments.environment import Environment
from clusterkit.environments.store import program_path
from clusterkit.site import Layout

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


def build_script(
    cluster: Cluster,
    layout: Layout,
    environment: Environment,
    image: str | None,
    *,
    name: str = "environment",
    folder: str | None = None,
    options: tuple[str, ...] = (),
) -> str:
    """Returns the script: it starts the cluster's Python as a run does, in the image if there is one.

    Args:
        cluster: the target.
        layout: its paths.
        environment: to build.
        image: the image's path or name there; None without a container.
        name: of the job.
        folder: the job's folder; None where the script is not a job's.
        options: the job's options.
    """
    from clusterkit.config.models import Profile

    place, program = f"{layout.environments}/{environment.digest}", program_path(layout)
    mounts = (f"{place}:{place}",) if folder else ()
    job = JobScript(
        run_id=name,
        run_dir=folder or place,
        submissions=(Submission(0, options=options),),
        cluster=cluster,
        profile=Profile.model_validate({"name": "environment", "time": "1h"}),
        snapshot=place,
        scratch_root=layout.scratch,
        cache_root=layout.cache,
        image=image,
        environment=place,
        environment_program=program,
        binds=(*cluster.binds, *mounts, f"{program}:{program}:ro"),
    )
    return render_environment(job)
