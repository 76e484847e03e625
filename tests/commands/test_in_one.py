"""`submit --in-one` on this machine: runs of their own, trained by the process of one of them."""

from __future__ import annotations

import json
import re

import pytest

from tests.commands.conftest import Project

SETTINGS = """
[project]
name = "seeds"
default_profile = "cart"
wandb.mode = "disabled"

[profiles.cart]
recipe = "ppo"
total_steps = 2048
num_envs = 4
workers = 0
device = "cpu"
checkpoint_every = 1024
time = "10m"

[profiles.two]
extends = "cart"
gpu = "a40"
gpus = 2

[clusters.far]
host = "nowhere"
root = "/r"
container = "none"
gpus.a40.partition = "p"
"""


NO_EVALUATIONS = ("--", "--eval-every", "0")


@pytest.fixture
def seeds(project: Project) -> Project:
    (project.folder / "clusterkit.toml").write_text(SETTINGS)
    return project


def end(project: Project, *run_ids: str) -> None:
    """Wait for the exit records, which costs less than `status` again and again."""
    paths = [project.run_dir(run_id) / "attempts/0/exit.json" for run_id in run_ids]
    project.until(lambda: all(path.exists() for path in paths), 300)


def log(project: Project, run_id: str) -> str:
    return (project.run_dir(run_id) / "attempts/0/log").read_text()


def digest(text: str) -> str:
    (found,) = re.findall(r"have the sha256 (\w+)", text)
    return str(found)


@pytest.mark.slow  # PyTorch in two processes
def test_each_run_is_one_of_its_own_and_learns_what_it_learns_alone(seeds: Project) -> None:
    alone = seeds.submit("--seed", "2", *NO_EVALUATIONS)
    end(seeds, alone)
    done = seeds.run("submit", "--seeds", "1..3", "--pack", "3", "--in-one", *NO_EVALUATIONS)
    assert "3 runs, 3 in one process" in done.stderr
    group = done.stdout.strip()
    runs = [f"{group}-{index}" for index in range(3)]
    end(seeds, *runs)
    assert seeds.states(group) == ["COMPLETED"] * 3
    logs = [log(seeds, run_id) for run_id in runs]
    assert sum("this process trains 3 runs" in text for text in logs) == 1
    assert sum("trains 3 runs, this one among them" in text for text in logs) == 2
    assert digest(logs[1]) == digest(log(seeds, alone))
    assert len({digest(text) for text in logs}) == 3
    for seed, run_id in enumerate(runs, 1):
        folder = seeds.run_dir(run_id)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        assert [line["seed"] for line in lines if line["kind"] == "run"] == [seed]
        assert (folder / "checkpoints/final_model.pt").exists()
        assert json.loads((folder / "heartbeat.json").read_text())["step"] == 2048
        assert json.loads((folder / "submissions/0/request.json").read_text())["in_one"] == 3
    there = seeds.folder / ".clusterkit/local/groups" / group
    assert json.loads((there / "group.json").read_text())["in_one"] == 3
    assert not (there / "together-0" / "door").exists()


@pytest.mark.slow
def test_what_cannot_be_trained_in_one_process_is_refused(seeds: Project) -> None:
    pack = ("--pack", "2", "--in-one")
    for words, said in {
        ("--seeds", "1,2", "--in-one"): "--pack 8 --in-one",
        (*pack,): "add --seeds",
        (*pack, "--seeds", "1,2", "--sweep", "gae_lambda=0.9,0.95"): "only in their seed, not in gae_lambda",
        (*pack, "--seeds", "1,2", "--max-parallel", "3"): "use --max-parallel 2",
        ("--pack", "8", "--in-one", "--seeds", "1..3", "--max-parallel", "2"): "use --max-parallel 3",
        (*pack, "--seeds", "1,2", "--until-done"): "use --not-until-done",
        (*pack, "--seeds", "1,2", "-p", "two", "-c", "far"): "has gpus = 2",
        (*pack, "--seeds", "1,2", "--", "--ranks", "2"): "--ranks 2 one run in several",
        (*pack, "--seeds", "1,2", "--", "--stop-at", "0.5"): "--in-one trains runs that end together",
        (*pack, "--seeds", "1,2", "--profile", "check"): "your own program",
    }.items():
        assert said in seeds.run("submit", *words, code=3).stderr, words


@pytest.mark.slow
def test_a_dry_run_on_a_cluster_shows_where_they_meet(seeds: Project) -> None:
    words = ("-c", "far", "--seeds", "1..5", "--pack", "2", "--in-one", "--dry-run")
    shown = seeds.run("submit", *words).stdout
    assert "5 runs in 3 jobs of 2 CPUs" in shown
    assert "2 in one process" in shown
    shown = seeds.run("submit", *words, "--script").stdout
    assert "CLUSTERKIT_TOGETHER=$(mktemp -d /r/scratch/together.XXXXXX)" in shown
    assert "taskset" not in shown
