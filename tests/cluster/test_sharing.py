"""A run of a real cluster leaves it in an archive, image and all, and runs again where nothing of it was."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import pytest

from tests.cluster.laptop import User

SETTINGS = """
[profiles.tells]
extends = "tiny"
program = ["python", "tell.py"]
"""
TELL = """
import hashlib, os, sys
made_of = [open(name).read() for name in ("tell.py", "notes.txt")] + sys.argv[1:]
print("seed", os.environ["CLUSTERKIT_SEED"])
print("sha256", hashlib.sha256(repr(made_of).encode()).hexdigest())
"""
"""Stands for a training: what it ends with depends on its code and its arguments."""


def without_image(user: User) -> None:
    """The image's file is no longer on the laptop."""
    settings = user.folder / "clusterkit.toml"
    lines = settings.read_text().splitlines()
    settings.write_text("\n".join(line for line in lines if not line.startswith("image")))


@pytest.fixture
def tells(user: User) -> None:
    """The program in the project."""
    (user.folder / "tell.py").write_text(TELL)
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(SETTINGS)


@pytest.fixture
def colleague(user: User, tells: None, tmp_path: Path) -> User:
    """Another laptop, and a work root with nothing in it."""
    folder = tmp_path / "colleague"
    folder.mkdir()
    settings = (user.folder / "clusterkit.toml").read_text()
    root = f'root = "/share/$USER/{user.folder.parent.name}"'
    assert root in settings
    (folder / "clusterkit.toml").write_text(settings.replace(root, 'root = "/share/$USER/colleague"'))
    return dataclasses.replace(user, folder=folder)


def test_out_and_in_again(user: User, colleague: User, tmp_path: Path) -> None:
    user.types("deploy")
    first = user.submits("--profile", "tells", "--seed", "3", "--", "two words")
    run = user.ended(first)[first]
    assert run["state"] == "COMPLETED", run
    (user.folder / "notes.txt").write_text("not what was submitted\n")
    without_image(user)
    without_image(colleague)
    archive = str(tmp_path / "run.tar.zst")
    with user.logging_in(times=1):
        user.types("export", first, "--with-image", "-o", archive)
    with colleague.logging_in(times=1):
        again = colleague.types("rerun", archive).strip()
    run = colleague.ended(again)[again]
    assert run["state"] == "COMPLETED", run
    (old,) = user.root.glob("images/*.sif")
    root = user.cluster.share / "alice" / "colleague"
    (new,) = root.glob("images/*.sif")
    assert new.name == old.name == f"sha256-{hashlib.sha256(new.read_bytes()).hexdigest()}.sif"
    digests = [_digest(place / "runs" / name) for place, name in ((user.root, first), (root, again))]
    assert digests[0] == digests[1]
    spec = json.loads((root / "runs" / again / "run.json").read_text())
    assert spec["rerun_of"] == first


def _digest(run_dir: Path) -> str:
    """What the program prints."""
    lines = (run_dir / "attempts" / "0" / "log").read_text().splitlines()
    (line,) = (line for line in lines if "sha256" in line)
    return line[line.index("sha256") :]
