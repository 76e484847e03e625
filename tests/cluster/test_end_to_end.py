"""The whole product on a real cluster: deploy, submit, status, logs, cancel, sync-results, W&B.

Everything goes through the command line as a user types it, from a project folder of the user's own. The
steps build on each other: each is a fixture that asks for the one before, so that any test can be run alone.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.laptop import User
from tests.doubles.wandb_server import WandbServer

SHORT_WARMUP = ["--set", "warmup_steps=160", "--unlock", "warmup_steps"]
PATIENCE_SECONDS = 500


@pytest.fixture(scope="module")
def deployed(user: User) -> str:
    """What the first deploy said."""
    with user.logging_in(times=1):
        return user.types("deploy")


@pytest.fixture(scope="module")
def finished(user: User, deployed: str) -> dict[str, list[str]]:
    """Two runs, one on each partition, watched to their end: run id -> states in order of appearance.

    Somebody else has all A100 GPUs first, so that the second run must wait.
    """
    block = ["sbatch", "--parsable", "-p", "gpu-a100", "--gres=gpu:a100:2", "-o", "/dev/null"]
    blocker = user.cluster.run("login", [*block, "--wrap", "sleep 600"], user="bob").stdout.strip()
    with user.logging_in(times=1):
        free = user.submits("--profile", "tiny", "--seed", "3", *SHORT_WARMUP)
    with user.logging_in(times=1):
        waiting = user.submits("--profile", "tiny-a100", "--name", "second run's name")
    states: dict[str, list[str]] = {free: [], waiting: []}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not all(seen[-1:] == ["COMPLETED"] for seen in states.values()):
        assert time.monotonic() < deadline, f"{states}\n{user.types('logs', free)}"
        for run_id, run in user.status(free, waiting).items():
            if states[run_id][-1:] != [run["state"]]:
                states[run_id].append(run["state"])
            if run_id == waiting and run["why"] and blocker:
                assert run["state"] == "PENDING"
                user.cluster.run("login", ["scancel", blocker], user="bob")
                blocker = ""
        time.sleep(0.5)
    assert not blocker, "the second run gave no reason for its waiting"
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


def test_a_gpu_the_cluster_lacks_changes_nothing(user: User, deployed: str) -> None:
    with user.logging_in(times=0):
        refused = user.tries("submit", "--profile", "h100-20m")
    assert refused.returncode == 3
    assert "h100" in refused.stderr
    assert "a100" in refused.stderr


def test_a_locked_recipe_value_changes_nothing(user: User, deployed: str) -> None:
    with user.logging_in(times=0):
        refused = user.tries("submit", "--set", "gamma=0.5")
    assert refused.returncode == 7
    assert "gamma" in refused.stderr


def test_a_refused_submission_shows_the_schedulers_words_and_leaves_no_run(user: User, deployed: str) -> None:
    runs = user.root / "runs"
    before = sorted(runs.iterdir())
    refused = user.tries("submit", "--sbatch", "partition=nosuch")
    assert refused.returncode == 5
    assert "invalid partition" in refused.stderr
    assert sorted(runs.iterdir()) == before


def test_runs_wait_run_and_complete(finished: dict[str, list[str]]) -> None:
    free, waiting = finished.values()
    assert free[-2:] == ["RUNNING", "COMPLETED"]
    assert waiting == ["PENDING", "RUNNING", "COMPLETED"]


def test_each_ran_on_its_partition(user: User, finished: dict[str, list[str]]) -> None:
    assert [user.status(run_id)[run_id]["node"] for run_id in finished] == ["a40n1", "a100n1"]


def test_logs_show_the_program(user: User, finished: dict[str, list[str]]) -> None:
    for run_id in finished:
        with user.logging_in(times=1):
            text = user.types("logs", run_id, "-n", "1000")
        assert "800" in text
        assert "Traceback" not in text


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
        assert json.loads((folder / "heartbeat.json").read_text())["step"] == 800
        assert (folder / "checkpoints/final_model.pt").stat().st_size > 10_000
        evaluations = [line for line in lines(folder) if line["kind"] == "eval"]
        assert evaluations[-1]["step"] == 800
        assert 0 <= evaluations[-1]["success/mean"] <= 1


def test_an_unlocked_recipe_value_marks_the_run(results: dict[str, Path]) -> None:
    modified = [
        json.loads((folder / "run.json").read_text())["recipe"]["modified"] for folder in results.values()
    ]
    assert modified == [{"warmup_steps": [3000, 160]}, {}]


def test_the_networks_were_updated(results: dict[str, Path]) -> None:
    learned, warming_up = (
        json.loads((path / "heartbeat.json").read_text())["updates"] for path in results.values()
    )
    assert learned == (800 - 160) // 16
    assert warming_up == 0


def test_every_step_reaches_wandb_once(user: User, results: dict[str, Path]) -> None:
    with WandbServer() as server, user.logging_in(times=1):
        user.types("sync-results", **server.client_env(user.folder.parent))
        assert set(server.runs) == set(results)
        for run_id, folder in results.items():
            run = server.runs[run_id]
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


def test_cancel_ends_a_running_run(user: User, deployed: str) -> None:
    run_id = user.submits("--profile", "endless")
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not user.status(run_id)[run_id]["progress"]:
        assert time.monotonic() < deadline, user.types("logs", run_id)
        time.sleep(0.5)
    with user.logging_in(times=1):
        user.types("cancel", run_id)
    while (state := user.status(run_id)[run_id]["state"]) != "CANCELLED":
        assert time.monotonic() < deadline, state
        time.sleep(0.5)
    assert user.cluster.run("a40n1", ["pgrep", "-u", "alice", "-f", "trainer"], check=False).stdout == ""
