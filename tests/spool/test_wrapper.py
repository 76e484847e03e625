"""A container runtime that clusterkit has never heard of starts programs."""

import json
import sys
from pathlib import Path

import pytest

from tests.spool.test_spool import SETTINGS, Place

pytestmark = pytest.mark.slow


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
