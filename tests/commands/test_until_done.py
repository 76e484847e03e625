"""The choice of a way, over a connection to a site whose scontrol is a script."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.backends.slurm.test_limits import CONFIG, PARTITION
from tests.commands.conftest import Project

SETTINGS = """
[clusters.site]
container = "none"
root = "{root}"
continue_by = "{way}"
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, first on PATH: a scontrol that answers, an sbatch that takes everything."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "config").write_text(CONFIG)
    (folder / "partition").write_text(PARTITION)
    answer = f'case "$*" in *config) cat {folder}/config ;; *) cat {folder}/partition ;; esac'
    scripts = {"scontrol": answer, "sbatch": f'echo "$@" >{tmp_path}/asked; echo 7'}
    for name, script in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


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
    assert "--requeue" in (commands.parent / "asked").read_text()
    (commands / "config").write_text(CONFIG.replace("JobRequeue              = 1", "JobRequeue = 0"))
    assert "by an array of jobs, one after the other: this site does not requeue" in submit(site)
    assert "--array=0-23%1" in (commands.parent / "asked").read_text()
    configure(site, "chain")
    assert "by a chain of jobs, each of which submits the next: continue_by is set to it" in submit(site)


def test_too_long_a_limit_is_refused_before_it_waits_for_ever(site: Project, commands: Path) -> None:
    refused = site.run("submit", "--cluster", "site", "--until-done", "--time", "2d", code=3).stderr
    assert "partition gpu-a40 gives 1d at most" in refused
    assert "--time 1d" in refused
    assert not (commands.parent / "asked").exists()


@pytest.mark.slow
def test_a_silent_site_needs_a_choice_of_ones_own(site: Project, commands: Path) -> None:
    (commands / "scontrol").write_text("#!/bin/sh\nexit 1\n")
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
    site: Project, commands: Path, order: tuple[str, str]
) -> None:
    with (site.folder / "clusterkit.toml").open("a") as settings:
        settings.write(PROFILES)
    for name, limit in (("debug", "00:30:00"), ("long", "2-00:00:00")):
        (commands / name).write_text(f"PartitionName={name} MaxTime={limit} PreemptMode=OFF State=UP\n")
    answer = f'case "$*" in *config) cat {commands}/config ;; *) cat {commands}/"${{4}}" ;; esac'
    (commands / "scontrol").write_text(f"#!/bin/sh\n{answer}\n")
    group = ("--profile", order[0], "--then", order[1], "--yes")
    site.run("submit", "--cluster", "site", *group)
    too_long = (commands / "long").read_text().replace("2-00", "0-12")
    (commands / "long").write_text(too_long)
    assert "partition long gives 12h at most" in site.run("submit", "-c", "site", *group, code=3).stderr


@pytest.mark.slow
def test_a_group_is_split_as_slurm_would_by_default_where_the_site_does_not_tell(
    site: Project, commands: Path
) -> None:
    (commands / "scontrol").write_text("#!/bin/sh\nexit 1\n")
    log = commands.parent / "all"
    (commands / "sbatch").write_text(f'#!/bin/sh\necho "$@" >>{log}\necho 7\n')
    site.run("submit", "--cluster", "site", "--seeds", "1..1003", "--yes")
    asked = log.read_text().splitlines()
    arrays = [next(word for word in line.split() if word.startswith("--array=")) for line in asked]
    assert arrays == ["--array=0-1000", "--array=0-1"]
