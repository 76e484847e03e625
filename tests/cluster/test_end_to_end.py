"""The whole product on a real cluster: deploy, submit, status, sync-results, W&B.

Everything goes through the command line as a user types it, from a project folder of the user's own. The
steps build on each other: each is a fixture that asks for the one before, so that any test can be run alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.doubles.wandb_server import WandbServer
from tests.waiting import until

BRIEF = ["--profile", "brief", "--sbatch", "partition=gpu-a100", "--sbatch", "gpus=a100:1"]
SMALL = {
    "actor_hidden": 8,
    "critic_hidden": 8,
    "batch_size": 16,
    "warmup_steps": 160,
    "env_steps_per_update": 16,
}
UNLOCKED = [word for key, value in SMALL.items() for word in ("--set", f"{key}={value}", "--unlock", key)]
PATIENCE_SECONDS = 500
PROFILES = """
[profiles.small]
extends = "tiny"
recipe = "sac"
"""


@pytest.fixture(scope="module")
def user(cluster: Cluster, small_sif: Path, tmp_path_factory: pytest.TempPathFactory) -> User:
    """With a small image, which the cluster has not got."""
    user = User.settle(tmp_path_factory.mktemp("laptop"), cluster, small_sif)
    with (user.folder / "clusterkit.toml").open("a") as settings:
        settings.write(PROFILES)
    return user


@pytest.fixture(scope="module")
def deployed(user: User) -> str:
    """What the first deploy said."""
    with user.logging_in(times=1):
        return user.types("deploy")


@pytest.fixture(scope="module")
def finished(user: User, deployed: str, small_sif: Path, trainer_sif: Path) -> dict[str, list[str]]:
    """A training, and a run on the other partition: run id -> states in order of appearance.

    From here on the image is the trainer's, which the cluster has: it is large, and would come as the small
    one did. Somebody else has all A100 GPUs first, so that the second run must wait.
    """
    settings = user.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace(str(small_sif), str(trainer_sif)))
    user.has_image(trainer_sif)
    block = ["sbatch", "--parsable", "-p", "gpu-a100", "--gres=gpu:a100:2", "-o", "/dev/null"]
    blocker = user.cluster.run("login", [*block, "--wrap", "sleep 600"], user="bob").stdout.strip()
    with user.logging_in(times=1):
        free = user.submits("--profile", "small", "--seed", "3", *UNLOCKED)
    with user.logging_in(times=1):
        waiting = user.submits(*BRIEF, "--name", "second run's name")
    states: dict[str, list[str]] = {free: [], waiting: []}

    def look() -> dict[str, dict[str, Any]]:
        seen = user.status(free, waiting)
        for run_id, run in seen.items():
            if states[run_id][-1:] != [run["state"]]:
                states[run_id].append(run["state"])
        return seen

    until((user.root / "runs" / free / "heartbeat.json").exists, PATIENCE_SECONDS)
    seen = look()
    assert seen[waiting]["why"], "the second run gave no reason for its waiting"
    user.cluster.run("login", ["scancel", blocker], user="bob")
    user.ended(free, waiting)
    until(lambda: all(run["final"] for run in look().values()))
    return states


@pytest.fixture(scope="module")
def results(user: User, finished: dict[str, list[str]]) -> dict[str, Path]:
    """Both runs at home: run id -> folder. There is no W&B key, and none is asked for."""
    with user.logging_in(times=1):
        user.types("sync-results")
    return {run_id: user.folder / "results" / run_id for run_id in finished}


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_deploy_brings_image_and_code_over_one_login(user: User, deployed: str) -> None:
    assert deployed.count("sent") == 2
    with user.logging_in(times=1):
        assert user.types("deploy").count("already there") == 2
    (image,) = user.root.glob("images/*.sif")
    assert image.stat().st_uid == 2001
    assert [path.read_text() for path in user.root.glob("snapshots/*/project/notes.txt")] == [
        "part of the snapshot\n"
    ]


def test_a_refused_submission_shows_the_schedulers_words_and_leaves_no_run(user: User, deployed: str) -> None:
    runs = user.root / "runs"
    before = sorted(runs.iterdir())
    refused = user.tries("submit", "--sbatch", "partition=nosuch")
    assert refused.returncode == 5
    assert "invalid partition" in refused.stderr
    assert sorted(runs.iterdir()) == before


def test_runs_wait_run_and_complete(finished: dict[str, list[str]]) -> None:
    free, waiting = finished.values()
    assert free == ["RUNNING", "COMPLETED"]
    assert waiting == ["PENDING", "COMPLETED"]


def test_each_ran_on_its_partition(user: User, finished: dict[str, list[str]]) -> None:
    assert [user.status(run_id)[run_id]["node"] for run_id in finished] == ["a40n1", "a100n1"]


def test_the_run_directory_is_private(user: User, finished: dict[str, list[str]]) -> None:
    for run_id in finished:
        path = f"/share/{user.root.relative_to(user.cluster.share)}/runs/{run_id}"
        assert user.cluster.run("login", ["stat", "-c", "%a", path]).stdout == "700\n"
        assert user.cluster.run("login", ["ls", path], user="bob", check=False).returncode != 0


def test_nothing_is_left_in_scratch(user: User, finished: dict[str, list[str]]) -> None:
    assert list((user.root / "scratch").iterdir()) == []


def test_results_come_home_whole(results: dict[str, Path]) -> None:
    for folder in results.values():
        record = json.loads((folder / "run.json").read_text())
        assert record["run_id"] == folder.name
        assert json.loads((folder / "attempts/0/exit.json").read_text())["why"] == "completed"


def test_a_training_comes_home_whole(results: dict[str, Path]) -> None:
    folder, _ = results.values()
    beat = json.loads((folder / "heartbeat.json").read_text())
    assert beat["step"] == 800
    assert beat["updates"] == (800 - 160) // 16
    assert (folder / "checkpoints/final_model.pt").stat().st_size > 5_000
    evaluations = [line for line in lines(folder) if line["kind"] == "eval"]
    assert evaluations[-1]["step"] == 800
    assert -3300 < evaluations[-1]["return/mean"] < 0
    # unlocked recipe values mark the run
    modified = json.loads((folder / "run.json").read_text())["recipe"]["modified"]
    assert modified.keys() == SMALL.keys()
    assert modified["warmup_steps"] == [100, 160]


def test_every_step_reaches_wandb_once(user: User, results: dict[str, Path]) -> None:
    trained, folder = next(iter(results.items()))
    with WandbServer() as server, user.logging_in(times=1):
        user.types("sync-results", **server.client_env(user.folder.parent))
        run = server.runs[trained]
        written = {(line["kind"], line["step"]) for line in lines(folder)}
        assert run.once
        # a result of an evaluation beside training comes late, in a row after that of its step
        arrived = [
            (kind, row["env_steps"])
            for row in run.history
            for kind in ("train", "eval")
            if any(key.startswith(f"{kind}/") for key in row)
        ]
        assert len(arrived) == len(set(arrived))
        assert set(arrived) == {each for each in written if each[0] in ("train", "eval")}
        assert run.state == "finished"
        assert server.unknown == []
