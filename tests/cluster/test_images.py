"""The image store of a real cluster: verified in jobs, mended, cleaned up under queued and running jobs."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path

import pytest

from tests.cluster.laptop import User
from tests.images.uploads import flip
from tests.waiting import until

DAY = 86_400


@pytest.fixture(scope="module")
def image(user: User) -> Path:
    """The image on the cluster."""
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write('[profiles.waits]\nextends = "tiny"\nprogram = ["sleep", "600"]\n')
    user.types("deploy")
    (image,) = user.root.glob("images/*.sif")
    return image


@pytest.fixture
def other(user: User, tmp_path: Path) -> User:
    """Another project of the same person, which deploys nothing and knows no job."""
    folder = tmp_path / "other"
    folder.mkdir()
    settings = (user.folder / "clusterkit.toml").read_text()
    lines = [line for line in settings.splitlines() if not line.startswith("image")]
    (folder / "clusterkit.toml").write_text("\n".join(lines))
    return dataclasses.replace(user, folder=folder)


def unfinished(user: User) -> list[str]:
    (image,) = json.loads(user.types("storage", "list", "--json"))["images"]
    return list(image["unfinished"])


def test_a_damaged_image_is_refused_and_then_mended(user: User, image: Path) -> None:
    flip(image, image.stat().st_size // 2)
    assert "already there" in user.types("deploy").split("code")[0]
    run_id = user.submits("--profile", "brief", "--verify-image")
    run = user.ended(run_id)[run_id]
    assert run["state"] == "FAILED"
    assert "has the SHA-256" in str(run["why"])
    assert "run clusterkit deploy --verify-image" in str(run["why"])
    before = user.cluster.sent_bytes()
    user.types("deploy", "--verify-image")
    assert user.cluster.sent_bytes() - before < 5_000_000
    run_id = user.submits("--profile", "brief", "--verify-image")
    run = user.ended(run_id)[run_id]
    assert run["state"] == "COMPLETED", run
    assert list(user.root.glob("images/.[!r]*")) == []


def test_gc_leaves_what_queued_and_running_jobs_use(user: User, other: User, image: Path) -> None:
    block = ["sbatch", "--parsable", "-p", "gpu-a100", "--gres=gpu:a100:2", "-o", "/dev/null"]
    blocker = user.cluster.run("login", [*block, "--wrap", "sleep 600"], user="bob").stdout.strip()
    elsewhere = ("--sbatch", "partition=gpu-a100", "--sbatch", "gpus=a100:1")
    queued = user.submits("--profile", "waits", *elsewhere, "--name", "queued")
    running = user.submits("--profile", "waits", "--name", "running")
    until(lambda: user.status(queued)[queued]["state"] == "PENDING")
    until(lambda: user.status(running)[running]["state"] == "RUNNING")
    snapshots = list(user.root.glob("snapshots/*"))
    for path in (image, *snapshots):
        os.utime(path, (time.time() - DAY,) * 2)
    assert sorted(unfinished(user)) == sorted(unfinished(other)) == sorted([queued, running])
    with user.logging_in(times=1):
        assert "nothing to remove" in other.tries("storage", "prune", "--ended", "--yes").stderr
    user.types("cancel", queued, running)
    assert {run["state"] for run in user.ended(queued, running).values()} == {"CANCELLED"}
    user.cluster.run("login", ["scancel", blocker], user="bob")
    assert unfinished(user) == []
    assert unfinished(other) == [], "its job's id is in its files"
    assert "nothing to remove" in other.tries("storage", "prune", "--yes").stderr, (
        "a run that ended keeps its image"
    )
    gone = other.types("storage", "prune", "--ended", "--yes")
    assert "removed" in gone
    assert not image.exists()
    assert list(user.root.glob("snapshots/*")) == []
