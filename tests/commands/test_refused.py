"""What submit leaves behind when sbatch refuses, or answers something unreadable.

sbatch is played by a script on PATH: a real one always names the job it accepts.
"""

from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.site import open_site
from clusterkit.submit.handover import SubmissionRefusedError, hand_over_job
from tests.commands.conftest import Project, Tool

CLUSTER = """
[clusters.here]
root = "{root}"
container = "none"
"""


def runs(project: Project, tmp_path: Path, tool: Tool, sbatch: str) -> tuple[str, list[Path]]:
    """Submit with that sbatch; returns what was said and the run directories that are left."""
    tool("sbatch", sbatch)
    project.add(CLUSTER.format(root=tmp_path / "root"))
    said = project.run("submit", "-c", "here", code=5).stderr
    return said, list((tmp_path / "root" / "runs").iterdir())


def test_a_refused_build_is_not_taken_for_an_older_job(tmp_path: Path, tool: Tool) -> None:
    """Slurm's accounting may know a job of the same name, which a search would find."""
    tool("sbatch", "echo 'sbatch: error: Invalid account' >&2; exit 1")
    for name in ("squeue", "sacct"):
        tool(name, f"echo asked >>{tmp_path}/asked")
    (tmp_path / "root" / "builds" / "a").mkdir(parents=True, mode=0o700)
    cluster = Cluster(name="here", root=str(tmp_path / "root"), container="none")
    files = {"builds/a/job.sh": b"#!/bin/sh\n"}
    with open_site(cluster) as site, pytest.raises(SubmissionRefusedError, match="Invalid account"):
        hand_over_job(site, "builds/a", files, job_name="build-a", options=(), new=False)
    assert not (tmp_path / "asked").exists()


@pytest.mark.slow
def test_a_refusal_leaves_no_run_directory(project: Project, tmp_path: Path, tool: Tool) -> None:
    said, left = runs(project, tmp_path, tool, "echo 'sbatch: error: invalid account' >&2; exit 1")
    assert "invalid account" in said
    assert left == []


@pytest.mark.slow
def test_an_accepted_job_without_an_id_keeps_its_run_directory(
    project: Project, tmp_path: Path, tool: Tool
) -> None:
    said, left = runs(project, tmp_path, tool, "echo 'welcome to the cluster'")
    assert "welcome to the cluster" in said
    (run_dir,) = left
    assert (run_dir / "job.sh").is_file()
