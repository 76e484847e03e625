"""What `[retry]` makes of a submission, and what it refuses; Slurm's commands are scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.commands.conftest import Project
from tests.commands.test_until_done import commands, configure

__all__ = ["commands"]

PROFILE = """
[profiles.heals]
memory = "4G"
time = "20m"

[profiles.heals.retry]
{retry}

[profiles.heals.sbatch]
{options}
"""
BOTH = 'memory_up_to = "16G"\nnode_failures = 2'


def healing(project: Project, retry: str = BOTH, options: str = "") -> Project:
    configure(project)
    project.add(PROFILE.format(retry=retry, options=options))
    return project


def submit(project: Project, *words: str, code: int = 0) -> str:
    return project.run("submit", "--profile", "heals", *words, code=code).stderr


def test_submit_says_so_and_asks_to_be_requeued(project: Project, commands: Path) -> None:
    said = submit(healing(project), "--cluster", "site")
    assert (
        "tried again with up to 16G when memory runs out, on another node after up to 2 node failures" in said
    )
    assert "--requeue" in (commands / "asked").read_text()
    (script,) = (project.folder.parent / "site").glob("runs/*/job.sh")
    assert "memory=${2:-4096}" in script.read_text()
    assert "most_memory=16384" in script.read_text()
    document = json.loads((script.parent / "run.json").read_text())
    assert document["profile"]["retry"] == {"memory_up_to": 16 << 30, "node_failures": 2}


def test_without_retry_the_job_script_has_nothing_of_it(project: Project, commands: Path) -> None:
    assert "tried again" not in submit(healing(project, retry=""), "--cluster", "site")
    (script,) = (project.folder.parent / "site").glob("runs/*/job.sh")
    assert re.search("oom_kills|lost=|submit_job", script.read_text()) is None
    assert "--requeue" not in (commands / "asked").read_text()


def test_the_projects_table_is_for_profiles_without_one(project: Project, commands: Path) -> None:
    healing(project, retry="")
    settings = project.folder / "clusterkit.toml"
    text = settings.read_text().replace("[profiles.heals.retry]", "[project.retry]\nnode_failures = 1\n")
    settings.write_text(text)
    assert "after up to 1 node failure" in submit(project, "--cluster", "site")


def test_this_machine_tries_nothing_again(project: Project) -> None:
    shown = healing(project).run("submit", "--profile", "heals", "--dry-run").stdout
    assert "the retry settings have no effect: local cannot try" in " ".join(shown.split())
    assert "retry" not in project.run("submit", "--dry-run").stdout


@pytest.mark.parametrize(
    ("retry", "options", "words"),
    [
        ('memory_up_to = "3G"', "", "memory_up_to = '3G' is below the requested 4G"),
        ('memory_up_to = "8G"', "mem = false", "no memory is requested"),
        ("node_failures = 1", "no-requeue = true", "contradicts the sbatch option no-requeue"),
        ("node_failures = 9", "", "less than or equal to 4"),
        ('memory_up_to = "much"', "", "much"),
    ],
)
def test_what_cannot_be_is_refused(project: Project, retry: str, options: str, words: str) -> None:
    assert words in submit(healing(project, retry, options), "--cluster", "site", code=3)
    assert not (project.folder.parent / "asked").exists()
