"""storage list and storage prune on the local cluster, with runs that wait, run and have ended."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import Project

pytestmark = pytest.mark.slow  # real servers or processes, a second or more each

DAY = 86_400


@dataclass(frozen=True)
class Stores:
    """The work root, seen from the far side."""

    project: Project

    @property
    def root(self) -> Path:
        return self.project.folder / ".clusterkit" / "local"

    def image(self, letter: str, *, age: float = DAY, prefix: str = "", size: int = 3 << 20) -> Path:
        """Put an image there; its digest is one letter, many times."""
        path = self.root / "images" / f"{prefix}sha256-{letter * 64}.sif"
        path.write_bytes(bytes(size))
        path.with_suffix(".chunks").write_bytes(b"list")
        os.utime(path, (time.time() - age,) * 2)
        return path

    def give(self, run_id: str, image: Path) -> None:
        """Let a run name an image."""
        named = {"digest": image.stem.removeprefix("sha256-"), "path": str(image), "bytes": 1}
        document = self.project.described(run_id) | {"image": named}
        (self.project.run_dir(run_id) / "run.json").write_text(json.dumps(document, indent=2))

    def snapshot_of(self, run_id: str) -> Path:
        return self.root / "snapshots" / self.project.described(run_id)["snapshot"]["id"]

    def listed(self) -> dict[str, dict[str, Any]]:
        """`images --json`, by the digest's first letter."""
        answer = json.loads(self.project.run("storage", "list", "--json").stdout)
        assert answer["schema"] == 1
        return {image["digest"][0]: image for image in answer["images"]}


@pytest.fixture
def stores(project: Project) -> Stores:
    project.run("deploy")
    return Stores(project)


@pytest.fixture
def ended(project: Project, stores: Stores) -> str:
    run_id = project.submit("--name", "ended")
    project.ended(run_id)
    return run_id


def test_only_what_no_run_uses_goes(project: Project, stores: Stores, ended: str) -> None:
    running = project.submit("--name", "running", "--", "sleep")
    project.begun(running)
    for_running, for_ended, unused, young = (stores.image(letter) for letter in "abcd")
    os.utime(young)
    damaged = stores.image("e", prefix=".damaged-")
    stores.give(running, for_running)
    stores.give(ended, for_ended)
    listed = stores.listed()
    assert (listed["a"]["runs"], listed["a"]["unfinished"]) == ([running], [running])
    assert (listed["b"]["runs"], listed["b"]["unfinished"]) == ([ended], [])
    assert (listed["c"]["runs"], listed["c"]["bytes"]) == ([], 3 << 20)
    assert listed["e"]["damaged"]
    table = project.run("storage", "list").stdout
    assert f"1 run, not ended: {running}" in table
    assert "1 run, all ended" in table

    everything = {path.name for path in (stores.root / "images").iterdir()}
    shown = project.run("storage", "prune", "--dry-run")
    assert "c" * 12 in shown.stdout
    assert "e" * 12 in shown.stdout
    assert "would free 6.0 MiB" in shown.stderr
    said = " ".join(shown.stderr.split())
    assert f"stays: image {'d' * 12} (3.0 MiB, used 0 min ago); it can go in 60 min" in said
    assert "use --yes" in project.run("storage", "prune", code=3).stderr
    assert {path.name for path in (stores.root / "images").iterdir()} == everything

    assert "2 removed, 6.0 MiB freed" in project.run("storage", "prune", "--yes").stdout
    assert not unused.exists()
    assert not unused.with_suffix(".chunks").exists()
    assert not damaged.exists()
    assert all(path.exists() for path in (for_running, for_ended, young))
    assert "nothing to remove" in project.run("storage", "prune", "--yes").stderr

    project.run("storage", "prune", "--ended", "--yes")
    assert not for_ended.exists()
    assert for_running.exists()
    project.run("cancel", running)
    project.ended(running)
    project.run("storage", "prune", "--ended", "--yes")
    assert not for_running.exists()


def test_snapshots_go_when_their_last_run_is_gone(project: Project, stores: Stores, ended: str) -> None:
    used = stores.snapshot_of(ended)
    (project.folder / "train.py").write_text("print('edited')")
    (project.folder / "large").write_bytes(os.urandom(2 << 20))
    project.run("deploy")
    there = set((stores.root / "snapshots").iterdir())
    bundles = {path for path in there if (path / "bundle").is_dir()}
    (unused,) = there - bundles - {used}
    project.run("storage", "prune", "--yes")
    assert unused.exists(), "it is young"
    for snapshot in there:
        os.utime(snapshot, (time.time() - DAY,) * 2)
    freed = float(project.run("storage", "prune", "--dry-run").stderr.split("free ")[1].split(" MiB")[0])
    assert 2 <= freed < 2.3, "files that the other snapshot has too free nothing"
    project.run("deploy")
    assert "nothing to remove" in project.run("storage", "prune", "--yes").stderr, "it was deployed again"
    os.utime(unused, (time.time() - DAY,) * 2)
    project.run("storage", "prune", "--yes")
    assert not unused.exists()
    assert used.exists()
    assert set((stores.root / "snapshots").iterdir()) == {used, *bundles}, "the run needs the trainer, too"


def test_a_run_that_waits_for_its_start_keeps_its_image(project: Project, stores: Stores, ended: str) -> None:
    """Submitted from another laptop: no attempt yet, and no job id is known here."""
    image = stores.image("a")
    stores.give(ended, image)
    run_dir = project.run_dir(ended)
    for path in sorted(run_dir.glob("attempts/**/*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (project.folder / ".clusterkit" / "ledger.sqlite3").unlink()
    assert stores.listed()["a"]["unfinished"] == [ended]
    assert "nothing to remove" in project.run("storage", "prune", "--ended", "--yes").stderr
    assert image.exists()


def test_nothing_goes_while_a_run_cannot_be_read(project: Project, stores: Stores, ended: str) -> None:
    image = stores.image("a")
    (project.run_dir(ended) / "run.json").write_text("{")
    refused = project.run("storage", "prune", "--yes", code=8)
    assert f"the run.json of {ended} does not say" in refused.stderr
    assert image.exists()


def test_what_broken_uploads_left_goes_after_a_day(project: Project, stores: Stores) -> None:
    folders = [stores.root / "images" / ".upload-a.1", stores.root / "snapshots" / ".b.2.part"]
    folders += [stores.root / "images" / ".upload-a.3"]
    for folder in folders:
        folder.mkdir()
        (folder / "image").write_bytes(bytes(1 << 20))
        for path in (folder / "image", folder):
            os.utime(path, (time.time() - 2 * DAY,) * 2)
    os.utime(folders[2] / "image")
    project.run("storage", "prune", "--yes")
    assert [folder.exists() for folder in folders] == [False, False, True]


def test_a_cluster_that_nothing_was_sent_to(project: Project) -> None:
    assert "no images on local" in project.run("storage", "list").stderr
    assert Stores(project).listed() == {}
    assert "nothing to remove" in project.run("storage", "prune").stderr
