"""Trackers through the real command line: a run requeued twice on this machine, synced after each start."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.commands.conftest import Project

pytestmark = pytest.mark.slow

pytest.importorskip("tensorboard", reason="tensorboard is not installed (extra `trackers`)")
pytest.importorskip("mlflow", reason="mlflow-skinny is not installed (extra `trackers`)")

PROGRAM = """
import json, os, pathlib, sys, time
run, attempt = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"]), int(os.environ["CLUSTERKIT_ATTEMPT"])
checkpoint = run / "checkpoint"
begin = int(checkpoint.read_text()) if checkpoint.exists() else 0
reached, saved = [(20, 15), (40, 31), (60, 60)][attempt]
with (run / "metrics.jsonl").open("a") as file:
    for step in range(begin + 1, reached + 1):
        row = {"kind": "train", "step": step, "time": time.time(), "attempt": attempt, "loss": attempt}
        file.write(json.dumps(row) + "\\n")
checkpoint.write_text(str(saved))
(run / f"logged-{attempt}").touch()
while not (run / f"synced-{attempt}").exists():
    time.sleep(0.05)
sys.exit(85 if attempt < 2 else 0)
"""
SETTINGS = """
[project.trackers]
tensorboard = "results/tensorboard"
mlflow = "sqlite:///results/mlflow.db"
"""
STEPS = list(range(1, 61))


def tensorboard(folder: Path) -> dict[int, float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    reader = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    reader.Reload()
    scalars = reader.Scalars("train/loss")
    assert max(Counter(one.step for one in scalars).values()) == 1
    return {one.step: one.value for one in scalars}


def mlflow(uri: str) -> tuple[dict[int, float], str]:
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("demo")
    (run,) = client.search_runs([experiment.experiment_id])
    history = client.get_metric_history(run.info.run_id, "train/loss")
    assert max(Counter(one.step for one in history).values()) == 1
    return {one.step: one.value for one in history}, run.info.status


def test_a_run_requeued_twice_and_synced_three_times_has_each_step_once_in_every_store(
    project: Project,
) -> None:
    (project.folder / "train.py").write_text(PROGRAM)
    project.add(SETTINGS)
    run_id = project.submit("--until-done")
    run_dir, results = project.run_dir(run_id), project.folder / "results"
    database, folder = f"sqlite:///{results}/mlflow.db", results / "mlruns"
    for attempt, reached in enumerate((20, 40, 60)):
        project.until((run_dir / f"logged-{attempt}").exists)
        synced = project.run("sync-results", "--no-wandb")
        assert "TensorBoard: 1 run brought up to date" in synced.stderr
        assert "MLflow: 1 run brought up to date" in synced.stderr
        assert sorted(tensorboard(results / "tensorboard" / run_id)) == STEPS[:reached]
        assert sorted(mlflow(database)[0]) == STEPS[:reached]
        also = project.run("sync-results", "--no-wandb", "--mlflow", "results/mlruns", "--json").stdout
        well = {"failed": [], "error": None}
        assert json.loads(also)["trackers"] == [
            {"tracker": "TensorBoard", "where": str(results / "tensorboard"), "runs": [], **well},
            {"tracker": "MLflow", "where": str(folder), "runs": [run_id], **well},
        ]
        (run_dir / f"synced-{attempt}").touch()
    project.until((run_dir / "attempts/2/exit.json").exists)
    for _ in range(3):
        project.run("sync-results", "--no-wandb", "--watch")
        project.run("sync-results", "--no-wandb", "--mlflow", "results/mlruns")
    starts = {step: 0 if step <= 15 else 1 if step <= 31 else 2 for step in STEPS}
    assert tensorboard(results / "tensorboard" / run_id) == starts
    first = {step: 0 if step <= 20 else 1 if step <= 40 else 2 for step in STEPS}
    assert mlflow(database) == (first, "FINISHED")
    assert mlflow(folder.as_uri()) == (first, "FINISHED")
    (attempts,) = {len(list((results / run_id / "attempts").iterdir()))}
    assert attempts == 3


def completed(project: Project, *names: str) -> list[str]:
    """Runs that have logged all their steps in one start."""
    program = PROGRAM.replace("[attempt]", "[2]").replace("attempt < 2", "False")
    (project.folder / "train.py").write_text(program)
    runs = [project.submit("--name", name) for name in names]
    for run_id in runs:
        (project.run_dir(run_id) / "synced-0").touch()
        project.ended(run_id)
    return runs


def test_a_tracker_that_fails_says_so_and_the_next_sync_catches_up(project: Project) -> None:
    (run_id,) = completed(project, "only")
    broken = project.folder / "broken.db"
    broken.write_text("no database\n" * 100)
    done = project.run(
        "sync-results", "--no-wandb", "--tensorboard", "boards", "--mlflow", "sqlite:///broken.db", code=9
    )
    assert "file is not a database" in done.stderr
    assert f"results lie in {project.folder / 'results'}" in done.stderr
    assert list(tensorboard(project.folder / "boards" / run_id)) == STEPS
    broken.unlink()
    project.run("sync-results", "--no-wandb", "--tensorboard", "boards", "--mlflow", "sqlite:///broken.db")
    assert list(mlflow(f"sqlite:///{broken}")[0]) == STEPS


def test_a_run_that_a_tracker_cannot_take_is_named_and_the_others_go_on(project: Project) -> None:
    runs = completed(project, "first", "second", "third")
    boards, store = project.folder / "boards", project.folder / "mlruns"
    boards.mkdir()
    (boards / runs[1]).write_text("a file in place of the run's folder")
    words = ("sync-results", "--no-wandb", "--tensorboard", "boards", "--mlflow", "mlruns")
    done = project.run(*words, code=9)
    assert f"TensorBoard {runs[1]}: " in done.stderr
    assert "TensorBoard: 1 of 3 runs could not be brought up to date" in done.stderr
    assert "MLflow: 3 runs brought up to date" in done.stderr
    assert list(tensorboard(boards / runs[2])) == STEPS
    (boards / runs[1]).unlink()
    (place,) = [tag.parents[1] for tag in store.glob("*/*/tags/clusterkit.run") if tag.read_text() == runs[0]]
    (place / "metrics/train/loss").unlink()
    (place / "metrics/train/loss").mkdir()
    (place / "tags/clusterkit.logged").write_text("unfinished")
    done = project.run(*words, "--json", code=9)
    told = {each["tracker"]: each for each in json.loads(done.stdout)["trackers"]}
    assert told["TensorBoard"]["runs"] == [runs[1]]
    assert [each["run_id"] for each in told["MLflow"]["failed"]] == [runs[0]]


def test_without_its_package_a_tracker_leaves_nothing_behind(project: Project) -> None:
    completed(project, "only")
    for package in ("tensorboard", "mlflow"):
        (project.folder / f"without/{package}").mkdir(parents=True)
        (project.folder / f"without/{package}/__init__.py").write_text(
            "raise ImportError('none', name=__name__)"
        )
    trackers = ["--tensorboard", "boards", "--mlflow", "mlruns/here"]
    words = ("sync-results", "--no-wandb", *trackers)
    process = project.start(*words, PYTHONPATH=str(project.folder / "without"))
    _, said = process.communicate()
    assert process.returncode == 9, said
    assert said.count("is not installed here") == 2
    assert not (project.folder / "boards").exists()
    assert not (project.folder / "mlruns").exists()


def test_an_invalid_place_is_refused_before_anything_is_done(project: Project) -> None:
    for place in ("mysql://host/db", "sqlite://file.db", "https://me:secret@host"):
        done = project.run("sync-results", "--mlflow", place, code=3)
        assert done.stderr.startswith("error: --mlflow: ")
        assert "secret" not in done.stderr
