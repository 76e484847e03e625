"""The stand-in against the real wandb client: an offline run, `wandb sync`, and how faults look."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.doubles import forked_wandb
from tests.doubles.wandb_server import WandbServer

pytestmark = pytest.mark.slow  # each upload starts the real client

pytest.importorskip("wandb", reason="the wandb client is not installed (extra `train`)")

STEPS = 25
WRITER = textwrap.dedent(
    """
    import sys, wandb
    run = wandb.init(project="demo", id=sys.argv[1], name="pretty", group="seeds", tags=["x"],
                     config={"lr": 3e-4, "tasks": ["reach-v3"]}, mode="offline", dir=sys.argv[2],
                     settings=wandb.Settings(console="off", x_disable_stats=True))
    for step in range(int(sys.argv[3])):
        run.log({"loss": 1.0 / (1 + step)}, step=step)
    run.finish(exit_code=int(sys.argv[4]))
    """
)


def offline_run(folder: Path, *, exit_code: int = 0) -> Path:
    """Write an offline run of STEPS history rows with the real client."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "WANDB_ERROR_REPORTING": "false"}
    forked_wandb.run(WRITER, "run1", str(folder), str(STEPS), str(exit_code), folder=folder, env=env)
    (written,) = (folder / "wandb").glob("offline-run-*-run1")
    return written


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return offline_run(tmp_path_factory.mktemp("writer"))


@pytest.fixture
def run_dir(finished: Path, tmp_path: Path) -> Path:
    """A fresh copy of a finished offline run: syncing leaves marks in the folder."""
    return shutil.copytree(finished, tmp_path / finished.name)


def sync(server: WandbServer, folder: Path, run: Path, *options: str, **extra: str) -> str:
    """Run the real `wandb sync`; returns what it printed."""
    env = {"PATH": os.environ["PATH"]} | server.client_env(folder) | forked_wandb.variables() | extra
    argv = [sys.executable, "-m", "wandb", "sync", *options, str(run)]
    done = subprocess.run(argv, env=env, cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_every_step_arrives_once(tmp_path: Path, run_dir: Path) -> None:
    with WandbServer() as server:
        assert "Finished syncing" in sync(server, tmp_path, run_dir)
        run = server.runs["run1"]
        assert run.arrived_steps == list(range(STEPS))
        assert run.once
        assert run.state == "finished"
        assert run.history[3]["loss"] == 0.25
        assert run.summary["loss"] == pytest.approx(1 / STEPS)
        assert run.config == {"lr": 3e-4, "tasks": ["reach-v3"]}
        assert (run.project, run.attributes["groupName"], run.attributes["tags"]) == ("demo", "seeds", ["x"])
        assert {"config.yaml", "wandb-metadata.json"} <= set(run.files)
        assert server.unknown == []


def test_a_failed_run_is_seen_as_failed(tmp_path: Path) -> None:
    run_dir = offline_run(tmp_path, exit_code=3)
    with WandbServer() as server:
        sync(server, tmp_path, run_dir)
        assert server.runs["run1"].state == "failed"
        assert server.runs["run1"].exit_codes == [3]


def test_a_second_upload_is_seen_as_duplicates(tmp_path: Path, run_dir: Path) -> None:
    with WandbServer() as server:
        sync(server, tmp_path, run_dir)
        sync(server, tmp_path, run_dir, "--include-synced")
        run = server.runs["run1"]
        assert run.duplicate_steps == dict.fromkeys(range(STEPS), 2)
        assert not run.once


def test_an_overwriting_upload_is_seen(tmp_path: Path, run_dir: Path) -> None:
    with WandbServer() as server:
        server.reports_line_count = False
        sync(server, tmp_path, run_dir)
        sync(server, tmp_path, run_dir, "--include-synced")
        run = server.runs["run1"]
        assert run.overwritten == STEPS
        assert len(run.history) == STEPS
        assert not run.once


def test_dropped_connections_are_retried_and_nothing_doubles(tmp_path: Path, run_dir: Path) -> None:
    with WandbServer() as server:
        server.fail("file_stream", 0, count=1)
        sync(server, tmp_path, run_dir)
        assert [request.status for request in server.requests if "file_stream" in request.path][:2] == [
            0,
            200,
        ]
        assert server.runs["run1"].arrived_steps == list(range(STEPS))


def test_a_refused_history_goes_unnoticed_by_the_client(tmp_path: Path, run_dir: Path) -> None:
    """Why an exit status is no proof of an upload: the client finishes cheerfully and nothing arrived."""
    with WandbServer() as server:
        server.fail("file_stream", 401)
        assert "Finished syncing" in sync(server, tmp_path, run_dir)
        assert server.runs["run1"].arrived_steps == []
        assert server.runs["run1"].state == "running"
