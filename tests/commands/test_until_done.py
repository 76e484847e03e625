"""How a run goes on past its limit or is tried again, at a site whose scontrol and sbatch are scripts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.backends.slurm.test_limits import CONFIG, PARTITION
from tests.commands.conftest import Project, Tool

SETTINGS = """
[clusters.site]
container = "none"
root = "{root}"
continue_by = "{way}"
"""


@pytest.fixture
def commands(tmp_path: Path, tool: Tool) -> Path:
    """A folder of answers: of a scontrol that tells them, and of an sbatch that takes everything."""
    (tmp_path / "config").write_text(CONFIG)
    (tmp_path / "partition").write_text(PARTITION)
    tool("scontrol", f'case "$*" in *config) cat {tmp_path}/config ;; *) cat {tmp_path}/partition ;; esac')
    tool("sbatch", f'echo "$@" >{tmp_path}/asked; echo 7')
    return tmp_path


@pytest.fixture
def site(project: Project) -> Project:
    """A project with a cluster of kind slurm, on this machine."""
    configure(project)
    return project


def configure(project: Project, way: str = "auto") -> None:
    settings = project.folder / "clusterkit.toml"
    own = settings.read_text().partition("\n[clusters.site]")[0]
    settings.write_text(own + SETTINGS.format(root=project.folder.parent / "site", way=way))


def submit(project: Project, *words: str) -> str:
    return project.run("submit", "--cluster", "site", "--until-done", *words).stderr


@pytest.mark.slow
def test_submit_says_which_way_and_why(site: Project, commands: Path) -> None:
    assert "by requeue: this site requeues jobs" in submit(site)
    assert "--requeue" in (commands / "asked").read_text()
    (commands / "config").write_text(CONFIG.replace("JobRequeue              = 1", "JobRequeue = 0"))
    assert "by an array of jobs, one after the other: this site does not requeue" in submit(site)
    assert "--array=0-23%1" in (commands / "asked").read_text()
    configure(site, "chain")
    assert "by a chain of jobs, each of which submits the next: continue_by is set to it" in submit(site)


def test_too_long_a_limit_is_refused_before_it_waits_for_ever(site: Project, commands: Path) -> None:
    refused = site.run("submit", "--cluster", "site", "--until-done", "--time", "2d", code=3).stderr
    assert "partition gpu-a40 gives 1d at most" in refused
    assert "--time 1d" in refused
    assert not (commands / "asked").exists()


@pytest.mark.slow
def test_a_silent_site_needs_a_choice_of_ones_own(site: Project, commands: Path, tool: Tool) -> None:
    tool("scontrol", "exit 1")
    assert "continue_by" in site.run("submit", "--cluster", "site", "--until-done", code=5).stderr
    configure(site, "array")
    assert "continue_by is set to it" in submit(site)


PROFILES = """
[profiles.small]
time = "20m"
sbatch = {partition = "debug"}

[profiles.big]
time = "24h"
until_done = true
sbatch = {partition = "long"}
"""


@pytest.mark.slow
@pytest.mark.parametrize("order", [("small", "big"), ("big", "small")])
def test_the_limits_of_a_group_are_those_of_the_partition_in_which_it_goes_on(
    site: Project, commands: Path, tool: Tool, order: tuple[str, str]
) -> None:
    site.add(PROFILES)
    for name, limit in (("debug", "00:30:00"), ("long", "2-00:00:00")):
        (commands / name).write_text(f"PartitionName={name} MaxTime={limit} PreemptMode=OFF State=UP\n")
    tool("scontrol", f'case "$*" in *config) cat {commands}/config ;; *) cat {commands}/"${{4}}" ;; esac')
    group = ("--profile", order[0], "--then", order[1], "--yes")
    site.run("submit", "--cluster", "site", *group)
    too_long = (commands / "long").read_text().replace("2-00", "0-12")
    (commands / "long").write_text(too_long)
    assert "partition long gives 12h at most" in site.run("submit", "-c", "site", *group, code=3).stderr


@pytest.mark.slow
def test_a_group_is_split_as_slurm_would_by_default_where_the_site_does_not_tell(
    site: Project, commands: Path, tool: Tool
) -> None:
    tool("scontrol", "exit 1")
    log = commands / "all"
    tool("sbatch", f'echo "$@" >>{log}\necho 7')
    site.run("submit", "--cluster", "site", "--seeds", "1..1003", "--yes")
    asked = log.read_text().splitlines()
    arrays = [next(word for word in line.split() if word.startswith("--array=")) for line in asked]
    assert arrays == ["--array=0-1000", "--array=0-1"]


HEALS = """
[profiles.heals]
memory = "4G"
time = "20m"

[profiles.heals.retry]
{retry}

[profiles.heals.sbatch]
{options}
"""
BOTH = 'memory_up_to = "16G"\nnode_failures = 2'


def healing(site: Project, retry: str = BOTH, options: str = "") -> Project:
    site.add(HEALS.format(retry=retry, options=options))
    return site


def submit_healing(site: Project, code: int = 0) -> str:
    return site.run("submit", "--profile", "heals", "--cluster", "site", code=code).stderr


def test_a_submit_with_retry_says_so_and_asks_to_be_requeued(site: Project, commands: Path) -> None:
    said = submit_healing(healing(site))
    assert (
        "tried again with up to 16G when memory runs out, on another node after up to 2 node failures" in said
    )
    assert "--requeue" in (commands / "asked").read_text()
    (script,) = (site.folder.parent / "site").glob("runs/*/job.sh")
    assert "memory=${2:-4096}" in script.read_text()
    assert "most_memory=16384" in script.read_text()
    document = json.loads((script.parent / "run.json").read_text())
    assert document["profile"]["retry"] == {"memory_up_to": 16 << 30, "node_failures": 2}


def test_without_retry_the_job_script_has_nothing_of_it(site: Project, commands: Path) -> None:
    assert "tried again" not in submit_healing(healing(site, retry=""))
    (script,) = (site.folder.parent / "site").glob("runs/*/job.sh")
    assert re.search("oom_kills|lost=|submit_job", script.read_text()) is None
    assert "--requeue" not in (commands / "asked").read_text()


def test_the_projects_table_is_for_profiles_without_one(site: Project, commands: Path) -> None:
    healing(site, retry="")
    settings = site.folder / "clusterkit.toml"
    text = settings.read_text().replace("[profiles.heals.retry]", "[project.retry]\nnode_failures = 1\n")
    settings.write_text(text)
    assert "after up to 1 node failure" in submit_healing(site)


def test_this_machine_tries_nothing_again(site: Project) -> None:
    shown = healing(site).run("submit", "--profile", "heals", "--dry-run").stdout
    assert "the retry settings have no effect: local cannot try" in " ".join(shown.split())
    assert "retry" not in site.run("submit", "--dry-run").stdout


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
def test_a_retry_that_cannot_be_is_refused(site: Project, retry: str, options: str, words: str) -> None:
    assert words in submit_healing(healing(site, retry, options), code=3)
    assert not (site.folder.parent / "asked").exists()
