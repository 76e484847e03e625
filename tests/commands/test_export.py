"""`clusterkit export` on the local cluster."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Project


@pytest.fixture
def run_id(project: Project) -> str:
    (project.folder / "a link").symlink_to("train.py")
    (project.folder / "tool.sh").write_text("#!/bin/sh\n")
    (project.folder / "tool.sh").chmod(0o755)
    run_id = project.submit("--", "0", "it's")
    project.ended(run_id)
    return run_id


def export(project: Project, run_id: str, *more: str) -> Path:
    shown = project.run("export", run_id, *more)
    assert "verified" in shown.stderr
    return project.folder / shown.stdout.strip()


@pytest.mark.slow
def test_an_archive_that_needs_nobody(project: Project, run_id: str, tmp_path: Path) -> None:
    path = export(project, run_id, "-o", "x.tar.gz")
    first = path.read_bytes()
    shutil.rmtree(project.folder / "results")
    shutil.rmtree(project.folder / ".clusterkit" / "snapshots")
    assert export(project, run_id, "-o", "x.tar.gz").read_bytes() == first
    (tmp_path / "there").mkdir()
    subprocess.run(["tar", "-xzf", path], cwd=tmp_path / "there", check=True)
    root = tmp_path / "there" / run_id
    subprocess.run(["sha256sum", "-c", "--quiet", "SHA256SUMS"], cwd=root, check=True)
    assert (root / "code" / "project" / "a link").is_symlink()
    assert not (root / "trainer").exists()
    assert json.loads((root / "run" / "run.json").read_text())["run_id"] == run_id
    assert json.loads((root / "export.json").read_text())["run_id"] == run_id
    # By hand, as the README says.
    _, _, by_hand = (root / "README.txt").read_text().partition("Again by hand, in this folder:\n")
    said = by_hand.partition("\n\nrun.json")[0]
    search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # Debian by itself has no `python`
    subprocess.run(["sh", "-e", "-c", said], cwd=root, check=True, env=os.environ | {"PATH": search})
    assert json.loads((root / "out" / "arguments.json").read_text()) == ["0", "it's"]


@pytest.mark.slow
def test_the_second_time_the_cluster_is_not_asked(project: Project, run_id: str) -> None:
    path = export(project, run_id)
    assert path.parent == project.folder / "results" / "exports"
    first = path.read_bytes()
    (project.folder / ".clusterkit" / "local").rename(project.folder / "gone")
    assert export(project, run_id).read_bytes() == first


@pytest.mark.slow
def test_code_that_is_damaged_or_gone(project: Project, run_id: str) -> None:
    snapshots = project.folder / ".clusterkit" / "local" / "snapshots"
    (damaged,) = snapshots.glob("*/project/train.py")
    damaged.chmod(0o600)
    content = damaged.read_bytes()
    damaged.write_bytes(content.replace(b"hello", b"hullo"))
    assert "different from snapshot" in project.run("export", run_id, code=8).stderr
    damaged.write_bytes(content)
    (damaged.parent / "more").touch()
    assert "does not belong to snapshot" in project.run("export", run_id, code=8).stderr
    (damaged.parent / "more").unlink()
    damaged.parent.parent.rename(snapshots / "elsewhere")
    assert "is no longer there" in project.run("export", run_id, code=8).stderr


def test_what_is_no_name_for_an_archive(project: Project) -> None:
    refused = project.run("export", "last", "-o", "x.zip", code=8)
    assert ".tar.zst or a .tar.gz" in refused.stderr


@pytest.mark.slow
def test_what_run_json_may_not_name(project: Project, run_id: str) -> None:
    project.run("sync-results", "--no-wandb")
    path = project.folder / "results" / run_id / "run.json"
    whole = json.loads(path.read_text())
    before = set(project.folder.parent.iterdir())
    odds: dict[str, dict[str, Any]] = {
        "is not a run id": {"run_id": "../../outside"},
        "damaged: image": {"image": {"digest": "../../outside", "bytes": 1}},
        "damaged: python_path": {"python_path": ["/a/bundle", "/b/bundle"]},
    }
    for said, odd in odds.items():
        path.write_text(json.dumps(whole | odd))
        assert said in project.run("export", run_id, code=8).stderr
        assert set(project.folder.parent.iterdir()) == before


def test_a_folder_that_is_not_there_is_not_made(project: Project) -> None:
    missing = project.folder / "no where"
    refused = project.run("export", "-o", f"{missing}/x.tar.gz", code=8)
    assert f"there is no folder {missing}" in refused.stderr
    assert "mkdir -p" in refused.stderr
    assert not missing.exists()
