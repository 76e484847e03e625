"""A tracker that clusterkit has never heard of gets each step once: no line of clusterkit knows of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Project, new_project
from tests.trackers.run_files import ALL_STEPS, STARTS, append, expected, lines

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    return new_project(tmp_path / "project", monkeypatch)


def log_to(project: Project, place: str) -> None:
    with (project.folder / "clusterkit.toml").open("a") as file:
        file.write(f'[project.trackers]\njsonlines = "{place}"\n')


def written(folder: Path, run_id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{run_id}.jsonl").read_text().splitlines()]


def test_each_step_arrives_once_after_every_sync(project: Project) -> None:
    log_to(project, "wide:curves")
    run_id = project.submit()
    project.ended(run_id)
    for attempt, steps in enumerate(STARTS):
        append(project.run_dir(run_id), lines(steps, attempt))
        synced = [json.loads(project.run("sync-results", "--no-wandb", "--json").stdout) for _ in range(2)]
        assert [answer["trackers"] for answer in synced] == [
            [
                {
                    "tracker": "JSON lines",
                    "where": f"wide:{project.folder}/curves",
                    "runs": runs,
                    "failed": [],
                    "error": None,
                }
            ]
            for runs in ([run_id], [])
        ]
    head, *rows = written(project.folder / "curves", run_id)
    assert (head["status"], head["seed"]) == ("FINISHED", "1")
    assert [row["step"] for row in rows] == ALL_STEPS
    assert {row["step"]: row["train/loss"] for row in rows} == expected()


def test_its_settings_are_checked_and_shown(project: Project) -> None:
    log_to(project, "long:curves")
    assert 'jsonlines = "long:curves"' in project.run("config").stdout
    run_id = project.submit()
    project.ended(run_id)
    append(project.run_dir(run_id), lines(STARTS[0], 0))
    assert "JSON lines: 1 run brought up to date" in project.run("sync-results", "--no-wandb").stderr
    names = {row["name"] for row in written(project.folder / "curves", run_id)[1:]}
    assert names == {"train/loss", "train/speed", "eval/success/mean"}
    settings = project.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace("long:", "tall:"))
    refused = project.run("sync-results", code=3)
    assert "project.trackers.jsonlines: write LAYOUT:FOLDER; layouts are long, wide" in refused.stderr


def test_a_place_outside_the_project_needs_permission(project: Project, tmp_path: Path) -> None:
    log_to(project, f"wide:{tmp_path}/elsewhere")
    project.ended(project.submit())
    refused = project.run("sync-results", "--no-wandb", code=10)
    assert f"project.trackers.jsonlines = {tmp_path}/elsewhere" in refused.stderr


def test_without_its_package_the_settings_name_the_trackers_that_exist(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_to(project, "wide:curves")
    monkeypatch.delenv("PYTHONPATH")
    refused = project.run("sync-results", code=3)
    assert "project.trackers.jsonlines: is not a tracker; there are tensorboard, mlflow" in refused.stderr
