"""Groups on the local cluster, and where sbatch takes only some of them, through the real command line."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from clusterkit.runs.ledger import Ledger
from tests.commands.conftest import Project, Tool
from tests.commands.test_cancel import answers

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each

PROGRAM = """
import json, os, pathlib, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
(run / "arguments.json").write_text(json.dumps(sys.argv[1:]))
(run / "seed").write_text(os.environ["CLUSTERKIT_SEED"])
(run / "before").write_text(os.environ.get("CLUSTERKIT_PREVIOUS_RUN_DIR", ""))
while "wait" in sys.argv and not pathlib.Path("/tmp", os.environ["GATE"]).exists():
    time.sleep(0.05)
sys.exit(int(os.environ.get("CLUSTERKIT_SWEEP_CODE", "0")))
"""
PROFILES = """
[profiles.second]
time = "6m"

[profiles.many]
time = "1h"
gpu = "a40"
gpus = 2
"""


@pytest.fixture
def gated(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file without which a program with the argument `wait` does not end."""
    (project.folder / "train.py").write_text(PROGRAM)
    project.add(PROFILES)
    gate = tmp_path / "gate"
    monkeypatch.setenv("GATE", str(gate))
    return gate


def over(project: Project, *names: str) -> list[str]:
    """Wait for the end of all runs of these names; their states."""
    project.until(lambda: not {"PENDING", "RUNNING"} & set(project.states(*names)))
    return project.states(*names)


def test_a_grid_with_two_at_a_time(project: Project, gated: Path) -> None:
    grid = ("--seeds", "1,2", "--sweep", "lr=a,b", "--max-parallel", "2")
    done = project.run("submit", *grid, "--", "wait", "{lr}", "s={seed}")
    group = done.stdout.strip()
    assert "4 runs, 5m each, 2 at a time" in done.stderr
    project.until(lambda: project.states(group).count("RUNNING") == 2)
    assert project.states(group) == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    gated.touch()
    assert over(project, group) == ["COMPLETED"] * 4
    arguments = [
        json.loads((project.run_dir(f"{group}-{index}") / "arguments.json").read_text()) for index in range(4)
    ]
    assert [words[1:] for words in arguments] == [["a", "s=1"], ["a", "s=2"], ["b", "s=1"], ["b", "s=2"]]
    assert "name one of them" in project.run("shell", group, "--", "true", code=8).stderr
    project.run("sync-results", group)
    spec = json.loads((project.folder / "results" / f"{group}-2" / "run.json").read_text())
    assert spec["group"] == {"id": group, "index": 2, "size": 4}
    assert spec["sweep"] == {"lr": "b", "seed": "1"}


def test_runs_that_differ_in_name_only_are_refused_and_leave_nothing(project: Project) -> None:
    (project.folder / "train.py").write_text("import sys\nprint(sys.argv)\n")
    for words, line in (
        (("--seeds", "1..3"), "clusterkit submit --seeds 1..3 -- --seed {seed}"),
        (("--sweep", "lr=0.1,0.3"), "clusterkit submit --sweep lr=0.1,0.3 -- --lr {lr}"),
    ):
        for more in ((), ("--dry-run",)):
            said = project.run("submit", *words, *more, code=3).stderr
            assert "runs would differ in name only" in said
            assert f"`{line}`" in said
    assert not list(project.folder.glob(".clusterkit/local/runs/*"))
    program, *arguments = shlex.split(line)
    assert program == "clusterkit"
    assert over(project, project.run(*arguments).stdout.strip()) == ["COMPLETED"] * 2
    group = project.submit("--seeds", "1..3", "--yes")
    assert over(project, group) == ["COMPLETED"] * 3
    said = project.run("rerun", f"{group}-0", "--seed", "4", code=3).stderr
    assert "the run would differ in name only: no argument and no file of the project takes seed" in said
    for name in ("search", "again"):
        said = project.run("search", name, "--space", "lr=1:2", code=3).stderr
        assert "the runs would differ in name only" in said
        assert "`-- --lr {lr}`" in said
    assert not (project.folder / ".clusterkit" / "searches").exists()


def test_a_group_goes_on_past_its_time_limit(project: Project) -> None:
    (project.folder / "train.py").write_text(
        "import os, sys\nprint(os.environ['CLUSTERKIT_SEED'])\n"
        "sys.exit(0 if os.environ['CLUSTERKIT_ATTEMPT'] == '1' else 85)\n"
    )
    group = project.submit("--seeds", "1,2", "--until-done")
    assert over(project, group) == ["COMPLETED"] * 2
    for index in range(2):
        record = project.run_dir(f"{group}-{index}") / "attempts/0/exit.json"
        assert json.loads(record.read_text())["why"] == "requeue"


def test_a_waiting_group_is_cancelled_as_a_whole(project: Project, gated: Path) -> None:
    group = project.submit("--seeds", "1..3", "--max-parallel", "1", "--", "wait")
    project.run("cancel", group)
    assert over(project, group) == ["CANCELLED"] * 3
    code, said = answers(project, "resume", "last", answer="n")
    assert code == 1
    assert f"Continue 3 runs of {group}" in said
    assert project.states() == ["CANCELLED"] * 3


def test_after_and_then_follow_success_and_failure(project: Project, gated: Path) -> None:
    first = project.submit("--name", "first", "--", "wait")
    pipeline = project.submit("--sweep", "code=0,4", "--then", "second", "--after", first)
    assert set(project.states(pipeline)) == {"PENDING"}
    gated.touch()
    assert over(project, first, pipeline) == ["COMPLETED", "COMPLETED", "FAILED", "COMPLETED", "CANCELLED"]
    before = (project.run_dir(f"{pipeline}-2") / "before").read_text()
    assert before == str(project.run_dir(f"{pipeline}-0"))
    assert f"after {pipeline}-1 completed" in project.run("status", pipeline).stdout
    refused = project.run("submit", "--after", pipeline, code=8)
    assert "would never start" in refused.stderr
    assert over(project, project.submit("--after", f"{pipeline}:any")) == ["COMPLETED"]
    always = project.submit("--sweep", "code=4", "--then", "second", "--then-always")
    assert over(project, always) == ["FAILED", "FAILED"]


def test_wrong_requests_change_nothing(project: Project, gated: Path) -> None:
    for words, said in {
        ("--seeds", "1,1"): "twice",
        ("--seeds", "1,2", "--seed", "3"): "exclude each other",
        ("--sweep", "profile=tiny,sceond"): "no profile 'sceond'",
        ("--seeds", "1,2", "--then", "sceond"): "no profile 'sceond'",
        ("--pack", "2", "--seeds", "1,2"): "--max-parallel 2",
        ("--seeds", "1..60"): "--yes",
        ("--after", "last", "--sbatch", "d=singleton"): "both set a dependency",
        ("--seeds", "1,2", "--sbatch", "array=0-3"): "job array itself",
        ("--then", "second", "--sweep", "profile=tiny"): "every stage has its own profile",
        ("--after", "nothing:sometimes"): "RUN:any",
        ("--max-parallel", "2"): "submitted together",
        ("--seeds", "1,2", "--then-always"): "--then-always needs --then",
    }.items():
        assert said in project.run("submit", *words, code=3).stderr
    assert "none was submitted" in project.run("submit", "--after", "nothing", code=8).stderr
    group = project.run("submit", "--seeds", "1..3", "--after", "nothing", "--yes", code=8)
    assert "3 runs" not in group.stdout + group.stderr  # nothing is shown before it is checked
    assert not (project.folder / ".clusterkit" / "local").exists()


def test_a_dry_run_of_a_group_shows_the_grid_or_the_scripts(project: Project, gated: Path) -> None:
    toml = project.folder / "clusterkit.toml"
    toml.write_text(toml.read_text() + '[clusters.far]\nhost = "nowhere"\nroot = "/r"\ncontainer = "none"\n')
    toml.write_text(toml.read_text() + '[clusters.far.gpus.a40]\npartition = "p"\n')
    words = ["-c", "far", "-p", "many", "--seeds", "1..8", "--pack", "4", "--dry-run"]
    shown = project.run("submit", *words, "--", "{seed}").stdout
    assert "8 runs in 2 jobs of 4 CPUs, 4 on a GPU, 1h each: up to 4.0 GPU hours" in shown
    assert "program     python train.py 1\n" in shown
    assert "part 0      2 jobs, 8 runs" in shown
    assert "#SBATCH" not in shown
    assert len(shown.splitlines()) <= 30
    scripts = project.run("submit", *words, "--script", "--", "{seed}").stdout
    assert scripts.count("#!/bin/bash") == 2
    assert "#SBATCH --array=0-1" in scripts
    assert "#SBATCH --cpus-per-task=4" in scripts
    assert "--requeue" not in scripts
    assert "nvidia-cuda-mps-control" not in scripts
    toml.write_text(toml.read_text().replace('host = "nowhere"', 'host = "nowhere"\nmps = true'))
    assert "nvidia-cuda-mps-control -d" in project.run("submit", *words, "--script", "--", "{seed}").stdout
    whole = project.run("submit", *words[:-1], "--sbatch", "c=6", "--script", "--", "{seed}").stdout
    assert "#SBATCH --cpus-per-task=6" in whole
    here = project.run("submit", "--seeds", "1,2", "--until-done", "--dry-run").stdout
    assert "--requeue" in here
    many = project.run("submit", "-c", "far", "-p", "many", "--seeds", "1..80", "--dry-run").stdout
    assert "80 runs" in many
    assert len([line for line in many.splitlines() if line.startswith("many-")]) < 30


SBATCH = """echo "$@" >>{folder}/calls
[ "$(wc -l <{folder}/calls)" -lt 2 ] || {{ echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2; exit 1; }}
echo 77
"""


@pytest.fixture
def site(project: Project, gated: Path, tmp_path: Path, tool: Tool) -> Path:
    """A Slurm of scripts, which leave files in this folder: sbatch takes one job, an array has two tasks."""
    tool("sbatch", SBATCH.format(folder=tmp_path))
    tool("scontrol", "echo 'MaxArraySize            = 2'")
    for name in ("squeue", "sacct"):
        tool(name, "")
    project.add(f'[clusters.here]\nroot = "{tmp_path}/root"\ncontainer = "none"\n')
    return tmp_path


def test_what_a_site_takes_stays_when_the_rest_is_refused(
    project: Project, site: Path, tmp_path: Path
) -> None:
    words = ("submit", "-c", "here", "--sweep", "profile=tiny,second", "--seeds", "1,2")
    done = project.run(*words, code=5)
    group = done.stdout.strip()
    assert "QOSMaxSubmitJobPerUserLimit" in done.stderr
    assert f"2 runs were not accepted: {group}-2" in done.stderr
    with Ledger(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        assert [run.job_id for run in ledger.find([group])] == ["77_0", "77_1", "", ""]
    rows = project.rows(group)
    assert [row["state"] for row in rows[2:]] == ["NOT_SUBMITTED"] * 2
    assert "QOSMaxSubmit" in rows[2]["why"]
    assert len((site / "calls").read_text().splitlines()) == 2
    again = project.run(*words, code=5)
    assert "refused" in again.stderr
    assert len(list((tmp_path / "root" / "groups").iterdir())) == 1
    assert len(list((tmp_path / "root" / "runs").iterdir())) == 4


def test_a_group_larger_than_the_queue_takes_is_accepted_and_fed(project: Project, site: Path) -> None:
    group = project.run("submit", "-c", "here", "--seeds", "1..5").stdout.strip()
    assert project.states(group)[2:] == ["DEFERRED"] * 3
    (site / "calls").unlink()
    said = project.run("resume", group, code=5).stderr
    assert "the queue took 1 more of its jobs" in said
    with Ledger(project.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        assert [run.state for run in ledger.find([group])][4:] == ["DEFERRED"]
    calls = (site / "calls").read_text().splitlines()
    assert f"--job-name={group}.1 " in calls[0]
    assert "--array=0-1 " in calls[0]
    assert f"--job-name={group}.2 " in calls[1]
