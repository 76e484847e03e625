"""A backend and a runtime that clusterkit has never heard of carry every command: none of it names them."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until

pytestmark = pytest.mark.slow

PROGRAM = """
import os, pathlib, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
print("hello from", os.environ["CLUSTERKIT_RUN_ID"], sys.argv[1:], os.environ["CLUSTERKIT_SEED"], flush=True)
while "wait" in sys.argv:
    time.sleep(0.05)
again = run / "again"
if "twice" in sys.argv and not again.exists():
    again.touch()
    sys.exit(85)
if "broken" in sys.argv:
    import nothing_of_that_name
"""
SETTINGS = """
[project]
name = "demo"
program = ["python", "train.py"]
default_profile = "tiny"
default_cluster = "line"

[profiles.tiny]
time = "5m"

[clusters.line]
kind = "spool"
root = "{root}"
container = "none"
python = "{python}"
"""


@dataclass
class Place:
    folder: Path

    def run(self, *words: str, code: int = 0) -> str:
        argv = [sys.executable, "-m", "clusterkit", *words]
        env = os.environ | {
            "PYTHONPATH": str(Path(__file__).parent),
            "SPOOL": str(self.folder.parent / "spool"),
            "XDG_CONFIG_HOME": str(self.folder / "none"),
            "COLUMNS": "200",
        }
        done = subprocess.run(argv, cwd=self.folder, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done.stdout

    def rows(self, name: str) -> list[dict[str, Any]]:
        return list(json.loads(self.run("status", name, "--json"))["runs"])

    def until(self, name: str, *states: str) -> list[dict[str, Any]]:
        def look() -> list[dict[str, Any]] | None:
            rows = self.rows(name)
            return rows if all(row["state"] in states for row in rows) else None

        return until(look) or []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    project = tmp_path / "project"  # without the root and the spool, whose files change while it is copied
    project.mkdir()
    (project / "train.py").write_text(PROGRAM)
    (project / "clusterkit.toml").write_text(SETTINGS.format(root=tmp_path / "root", python=sys.executable))
    return Place(project)


def test_submit_status_logs_and_why(place: Place) -> None:
    run_id = place.run("submit", "--", "one", "two words").strip()
    (row,) = place.until(run_id, "COMPLETED")
    assert row["job_id"] == "1"
    assert "['one', 'two words']" in place.run("logs", run_id)
    broken = place.run("submit", "--", "broken").strip()
    place.until(broken, "FAILED")
    told = json.loads(place.run("why", broken, "--json"))
    assert told["cause"] == "import-error"


def test_a_sweep_waits_for_another_run_and_a_run_is_cancelled(place: Place) -> None:
    first = place.run("submit", "--", "wait").strip()
    group = place.run("submit", "--seeds", "1..3", "--after", f"{first}:any").strip()
    place.until(first, "RUNNING")
    assert {row["state"] for row in place.rows(group)} == {"PENDING"}
    place.run("cancel", first, "--yes")
    place.until(first, "CANCELLED")
    rows = place.until(group, "COMPLETED")
    assert sorted(row["job_id"] for row in rows) == ["2", "3", "4"]
    assert "hello" in place.run("logs", f"{group}-1")


def test_a_run_goes_on_until_it_is_done(place: Place) -> None:
    run_id = place.run("submit", "--until-done", "--", "twice").strip()
    (row,) = place.until(run_id, "COMPLETED")
    assert row["attempt"] == 1


def test_resume_and_rerun(place: Place) -> None:
    run_id = place.run("submit", "--", "broken").strip()
    place.until(run_id, "FAILED")
    assert place.run("resume", run_id).strip() == run_id
    until(lambda: place.rows(run_id)[0]["submission"] == 1)
    place.until(run_id, "FAILED")
    again = place.run("rerun", run_id).strip()
    assert place.until(again, "FAILED")[0]["job_id"] == "3"


def test_what_is_not_there_is_named_by_its_kind(place: Place) -> None:
    settings = place.folder / "clusterkit.toml"
    settings.write_text(settings.read_text().replace('"spool"', '"spools"'))
    argv = [sys.executable, "-m", "clusterkit", "submit"]
    done = subprocess.run(argv, cwd=place.folder, capture_output=True, text=True)
    assert done.returncode == 3
    assert "'slurm', 'local'" in done.stderr or "'slurm' or 'local'" in done.stderr


def test_a_run_and_doctor_start_programs_in_a_runtime_of_another_package(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; print('wrapped', os.environ['WRAPPED'])")
    (tmp_path / "wrapper.sh").write_text('#!/bin/sh\nWRAPPED="by $1" exec "$@"\n')
    settings = SETTINGS.format(root=tmp_path / "root", python=sys.executable).replace('"spool"', '"local"')
    settings = settings.replace('"none"', '"wrapper"\nimage = "wrapper.sh"')
    (tmp_path / "clusterkit.toml").write_text(settings)
    place = Place(tmp_path)
    place.run("deploy")
    run_id = place.run("submit").strip()
    place.until(run_id, "COMPLETED")
    assert f"wrapped by {sys.executable}" in place.run("logs", run_id)
    place.run("config", "allow")
    checks = {row["name"]: row["outcome"] for row in json.loads(place.run("doctor", "--json"))["checks"]}
    assert (checks["runtime"], checks["container"]) == ("pass", "pass")
