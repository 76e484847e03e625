"""`clusterkit build` with a real Apptainer, on a small image."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import Project, project
from tests.images.building.archives import docker_archive

__all__ = ["project"]
pytestmark = pytest.mark.cluster

DEFINITION = """\
Bootstrap: localimage
From: {base}

%files
    packages.txt /opt/trainer/packages.txt

%post
    echo "building in $(cat /etc/name)"
    {post}

%test
    {test}
"""


@pytest.fixture
def base(project: Project, node_root: Path, apptainer: Path) -> Path:
    """A converted image in the project's folder, as base.sif."""
    files = {"/etc/name": "tiny", "/opt/trainer/packages.txt": "torch==1.0\nold==1\n"}
    docker_archive(project.folder / "tiny.tar", node_root, files)
    project.run("build", "base.sif", "--from", "docker-archive:tiny.tar")
    return project.folder / "base.sif"


def define(project: Project, *, post: str = "true", test: str = "true", base: str = "base.sif") -> None:
    (project.folder / "my.def").write_text(DEFINITION.format(base=base, post=post, test=test))
    (project.folder / "packages.txt").write_text("torch==2.0\nnew==1\n")


def inside(apptainer: Path, image: Path, command: str) -> str:
    argv = [apptainer, "-q", "exec", "--userns", "--cleanenv", image, "sh", "-c", command]
    return subprocess.run(argv, capture_output=True, text=True, check=True, cwd=image.parent).stdout


def test_a_docker_archive_becomes_an_image_that_runs(project: Project, base: Path, apptainer: Path) -> None:
    assert inside(apptainer, base, 'echo "$GREETING"; cat /etc/name') == "hello from Docker\ntiny"


def test_a_definition_on_top_of_it_says_what_changed(project: Project, base: Path, apptainer: Path) -> None:
    define(project, base=str(base))  # with a blank in its path
    done = project.run("build", "new.sif", "--definition", "my.def")
    image = project.folder / "new.sif"
    assert hashlib.sha256(image.read_bytes()).hexdigest() in done.stdout
    for line in ("+ new 1", "- old 1", "~ torch 1.0 -> 2.0"):
        assert line in done.stdout
    assert "building in tiny" in done.stderr
    assert inside(apptainer, image, "cat /opt/trainer/packages.txt") == "torch==2.0\nnew==1\n"


@pytest.mark.parametrize("where", ["post", "test"])
def test_a_fault_in_the_definition_leaves_no_image(project: Project, base: Path, where: str) -> None:
    define(project, **{where: "echo 'ERROR: it broke' >&2; exit 3"})
    said = project.run("build", "new.sif", "--definition", "my.def", code=6).stderr
    assert "error: apptainer could not build the image: ERROR: it broke" in said
    assert sorted(path.name for path in project.folder.glob("*.sif*")) == ["base.sif"]
    assert not list(project.folder.glob(".*.part"))


def test_an_interrupted_build_leaves_no_image(project: Project, base: Path) -> None:
    define(project, post="echo sleeping; sleep 60")
    argv = [sys.executable, "-m", "clusterkit", "build", "new.sif", "--definition", "my.def"]
    process = subprocess.Popen(argv, cwd=project.folder, stderr=subprocess.PIPE, text=True)
    assert any("sleeping" in line for line in process.stderr if not line.startswith("+"))
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    assert process.wait(60) == 130
    assert sorted(path.name for path in project.folder.iterdir() if ".sif" in path.name) == ["base.sif"]


def test_a_damaged_archive_is_no_traceback(project: Project, apptainer: Path) -> None:
    (project.folder / "bad.tar").write_bytes(b"no archive")
    said = project.run("build", "a.sif", "--from", "docker-archive:bad.tar", code=6).stderr
    assert "apptainer could not build the image" in said
    assert not (project.folder / "a.sif").exists()
