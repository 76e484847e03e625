"""build: what it says and leaves behind, with a script on PATH that plays Apptainer and fails on demand.

The real one builds in tests/images/building/test_real.py and tests/cluster/test_build.py.
"""

import hashlib
import json
import os
import signal
import stat
import subprocess
import time
from pathlib import Path

import pytest

from tests.commands.conftest import CONFIG, Project, Tool

FAKE = """
case "$*" in *--help*) echo "--mksquashfs-args"; exit ;; esac
if [ "$1" = exec ]; then cat "$PACKAGES"; exit; fi
printf '%s\\n' "$@" "$SOURCE_DATE_EPOCH" >"$CALLED"
for last; do :; done
test "$last" != image.def || { test -f "$last" && test -f install.sh && test -f locked.txt; } || exit 9
while [ $# -gt 2 ]; do shift; done
printf 'half a SIF' >"$1"
test -z "$FAIL" || { echo "$FAIL"; echo "FATAL:   While performing build"; exit 255; }
test -z "$SLEEP" || { echo "sleeping $$"; sleep "$SLEEP"; }
printf '#!/usr/bin/env run-singularity\\n\\0SIF_MAGIC\\0%s' "$last" >"$1"
"""


@pytest.fixture
def apptainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: Tool) -> Path:
    tool("apptainer", FAKE)
    monkeypatch.setenv("CALLED", str(tmp_path / "called"))
    monkeypatch.setenv("PACKAGES", str(tmp_path / "packages"))
    (tmp_path / "packages").write_text("torch==2.12\nold==1\n")
    return tmp_path / "called"


def building(project: Project, *words: str) -> tuple[subprocess.Popen[str], int]:
    """A build that sleeps, and the process in which it does."""
    process = project.start("build", *words)
    return process, next(int(line.split()[1]) for line in process.stderr if "sleeping" in line)


def sifs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if ".sif" in path.name)


@pytest.mark.slow
def test_print_builds_nothing(project: Project) -> None:
    assert "Bootstrap: docker" in project.run("build", "--print").stdout
    assert "locked-cpu.txt" in project.run("build", "--print", "--torch", "cpu").stdout
    assert "no definition" in project.run("build", "--print", "--from", "docker:x", code=3).stderr
    (project.folder / "my.def").write_text("Bootstrap: docker\nFrom: mine\n")
    assert (
        project.run("build", "--print", "--definition", "my.def").stdout == "Bootstrap: docker\nFrom: mine\n"
    )
    assert not sifs(project.folder)


def test_it_builds_beside_all_inputs_and_publishes_by_rename(project: Project, apptainer: Path) -> None:
    said = project.run("build", "my image.sif").stdout
    image = (project.folder / "my image.sif").read_bytes()
    assert hashlib.sha256(image).hexdigest() in said
    assert "2 packages" in said
    called = apptainer.read_text().splitlines()
    assert called[:3] == ["build", "--force", "--fakeroot"]
    assert called[-2:] == ["image.def", "1700000000"]
    assert sifs(project.folder) == ["my image.sif"]


@pytest.mark.slow
def test_it_says_what_changed_since_the_build_before(
    project: Project, apptainer: Path, tmp_path: Path
) -> None:
    assert "previous build" not in project.run("build").stdout
    assert "the same packages" in project.run("build", "--force").stdout
    (tmp_path / "packages").write_text("torch==2.13\nnew==1\n")
    said = project.run("build", "other.sif").stdout
    assert "+ new 1" in said
    assert "- old 1" in said
    assert "~ torch 2.12 -> 2.13" in said
    remembered = json.loads((project.folder / ".clusterkit" / "build.json").read_text())
    assert remembered["packages"] == {"torch": "2.13", "new": "1"}


def test_a_conversion_needs_no_root_and_keeps_the_files_times(project: Project, apptainer: Path) -> None:
    (project.folder / "a.tar").touch()
    project.run("build", "a.sif", "--from", "docker-archive:a.tar")
    called = apptainer.read_text().splitlines()
    assert "--fakeroot" not in called
    assert called[-2:] == [f"docker-archive:{project.folder}/a.tar", ""]


def test_a_registrys_image_is_taken_for_another_architecture(project: Project, apptainer: Path) -> None:
    project.run("build", "a.sif", "--from", "docker://mine", "--arch", "aarch64")
    assert "--arch arm64" in apptainer.read_text().replace("\n", " ")
    assert "--from docker://NAME" in project.run("build", "b.sif", "--arch", "aarch64", code=3).stderr


@pytest.mark.slow
def test_an_existing_image_is_kept_without_force(project: Project, apptainer: Path) -> None:
    (project.folder / "a.sif").write_text("old")
    assert "--force" in project.run("build", "a.sif", code=6).stderr
    assert (project.folder / "a.sif").read_text() == "old"
    project.run("build", "a.sif", "--force")
    assert "SIF_MAGIC" in (project.folder / "a.sif").read_text()


def test_a_failed_build_says_why_and_leaves_what_was_there(
    project: Project, apptainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project.folder / "a.sif").write_text("old")
    monkeypatch.setenv("FAIL", "mksquashfs: No space left on device")
    said = project.run("build", "a.sif", "--force", code=6).stderr
    assert "error: apptainer could not build the image: mksquashfs: No space left" in said
    assert "next:  room is needed" in said
    assert sifs(project.folder) == ["a.sif"]
    assert (project.folder / "a.sif").read_text() == "old"


@pytest.mark.slow
def test_an_interrupted_build_leaves_nothing(
    project: Project, apptainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLEEP", "60")
    process, _ = building(project, "a.sif")
    assert sifs(project.folder)
    process.send_signal(signal.SIGINT)
    process.stderr.read()
    assert process.wait(100) == 130
    assert not sifs(project.folder)


@pytest.mark.slow
def test_a_killed_build_shows_no_image_and_the_next_one_does(
    project: Project, apptainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLEEP", "60")
    monkeypatch.setenv("APPTAINER_TMPDIR", str(project.folder.parent))
    process, orphan = building(project, "a.sif")
    process.kill()
    process.stderr.close()
    process.wait()
    (part,) = sifs(project.folder)
    assert part.startswith(".a.sif.")
    monkeypatch.delenv("SLEEP")
    project.run("build", "a.sif")
    assert sifs(project.folder) == [part, "a.sif"]
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(project.folder / part, (long_ago, long_ago))
    project.run("build", "b.sif")
    assert sifs(project.folder) == [part, "a.sif", "b.sif"]
    project.run("build", "a.sif", "--force")
    assert sifs(project.folder) == ["a.sif", "b.sif"]
    os.killpg(orphan, signal.SIGKILL)  # it leads a session of its own


def test_wrong_input(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "docker" in project.run("build", "--bootstrap", "dokcer", code=3).stderr
    assert "--from" in project.run("build", "--bootstrap", "localimage", code=3).stderr
    assert "--cluster" in project.run("build", "--sbatch", "qos=long", code=2).stderr
    assert "does not use containers" in project.run("build", "--cluster", "local", code=3).stderr
    monkeypatch.setenv("PATH", str(tmp_path))
    said = project.run("build", code=6).stderr
    assert "--cluster NAME" in said
    assert "--print" in said


@pytest.fixture
def box(project: Project, apptainer: Path) -> Path:
    """The work root of a cluster without Slurm that has (our) Apptainer."""
    root = project.folder.parent / "box"
    (project.folder / "clusterkit.toml").write_text(
        f'{CONFIG}\n[clusters.box]\nkind = "local"\nroot = "{root}"\ncontainer = "apptainer"\n'
    )
    return root


@pytest.mark.slow
def test_a_build_as_a_job_ends_in_the_image_store(project: Project, box: Path) -> None:
    done = project.run("build", "--cluster", "box")
    (image,) = (box / "images").glob("*.sif")
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    assert image.name == f"sha256-{digest}.sif"
    assert stat.S_IMODE(image.stat().st_mode) == 0o400
    assert f"box:{image}" in done.stdout
    assert "building on" in done.stderr
    assert not list((box / "builds").iterdir())
    assert not list((box / "scratch").iterdir())
    assert digest in project.run("submit", "--cluster", "box", "--script").stdout
    toml = project.folder / "clusterkit.toml"
    toml.write_text(f'{toml.read_text()}image = "not-here.sif"\n')  # as README.md has it
    plan = json.loads(project.run("deploy", "--cluster", "box", "--json").stdout)["image"]
    assert (plan["digest"], plan["present"], plan["path"]) == (digest, True, None)
    image.unlink()
    assert "build --cluster box" in project.run("deploy", "--cluster", "box", code=6).stderr


DOCKER = """case "$1 $2 $4" in
  "save --output mine:latest") echo archive >"$3" ;;
  *) echo "Error response from daemon: No such image: $4" >&2; exit 1 ;;
esac
"""


@pytest.mark.slow
def test_an_image_of_this_machines_docker_travels_as_an_archive(
    project: Project, box: Path, apptainer: Path, tool: Tool
) -> None:
    tool("docker", DOCKER)
    project.run("build", "--cluster", "box", "--from", "docker-daemon:mine")
    assert apptainer.read_text().splitlines()[-2] == "docker-archive:image.tar"
    said = project.run("build", "--cluster", "box", "--from", "docker-daemon:other", code=6).stderr
    assert "docker cannot save other:latest" in said
    assert "No such image" in said


@pytest.mark.slow
def test_a_failed_job_says_why_and_keeps_its_log(
    project: Project, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIL", "chown: changing ownership of '/x': Invalid argument")
    said = project.run("build", "--cluster", "box", code=6).stderr
    assert "error: this machine: the build failed: chown" in " ".join(said.split())
    assert "/etc/subuid" in said
    assert not list((box / "images").glob("*sha256*"))
    (folder,) = (box / "builds").iterdir()
    assert "FATAL" in (folder / "log").read_text()
    assert not (folder / "image.sif").exists()
    monkeypatch.delenv("FAIL")
    project.run("build", "--cluster", "box")
    assert len(list((box / "images").glob("*.sif"))) == 1


@pytest.mark.slow
def test_an_interrupted_job_is_cancelled(
    project: Project, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLEEP", "60")
    process, _ = building(project, "--cluster", "box")
    process.send_signal(signal.SIGINT)
    assert "cancelling" in process.stderr.read()
    assert process.wait(100) == 130
    assert not list((box / "images").glob("*sha256*"))
    project.until(lambda: not list((box / "scratch").iterdir()))


@pytest.mark.slow
def test_the_same_build_twice_at_once_is_one_job(
    project: Project, box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLEEP", "4")
    process, _ = building(project, "--cluster", "box")
    process.kill()  # as when the laptop sleeps: the job goes on
    process.stderr.close()
    process.wait()
    said = project.run("build", "--cluster", "box").stderr
    assert "builds this already" in said
    assert len(list((box / "images").glob("*.sif"))) == 1
