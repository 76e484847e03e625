"""What a project's file asks for, and what of it cannot travel."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from clusterkit.config.models import Cluster
from clusterkit.environments.environment import Environment, find_file, read_environment
from clusterkit.environments.wheels import fetch, platforms
from clusterkit.errors import ConfigError
from clusterkit.runs.spec import is_sound
from clusterkit.site import Layout, Site

HASH = "--hash=sha256:" + "0" * 64
PROJECT = """[project]
name = "mine"
version = "1"
requires-python = ">=3.10"
dependencies = ["alpha >= 1", "beta"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


def read(project: Path, text: str, name: str = "requirements.txt", image: str = "") -> Environment:
    (project / name).write_text(text)
    return read_environment(project, project / name, image)


def test_requirements_travel_with_what_they_include(project: Path) -> None:
    (project / "more").mkdir()
    (project / "more/base.txt").write_text("beta==2 # why\n-c pins.txt\n")
    (project / "more/pins.txt").write_text("gamma<3\n")
    found = read(project, "-r more/base.txt\n# none\nalpha \\\n  ; python_version > '3'\n--pre\n")
    assert found.inputs["requirements.txt"] == "beta==2\nalpha ; python_version > '3'\n--pre\n"
    assert found.inputs["constraints.txt"] == "gamma<3\n"
    assert (found.packages, found.file, found.locked) == (2, "requirements.txt", False)


def test_the_digest_is_of_the_packages_and_the_image_alone(project: Path) -> None:
    first = read(project, "alpha==1\n")
    assert read(project, "# a comment\nalpha==1\n").digest == first.digest
    assert read(project, "alpha==1\n", "other.txt").digest == first.digest
    others = [read(project, "alpha==2\n"), read(project, "alpha==1\n", image="sha256-1")]
    assert len({first.digest, *(other.digest for other in others)}) == 3
    assert "on_image yes" in others[1].inputs["about"]


def test_of_a_lock_with_all_hashes_nothing_is_resolved(project: Path) -> None:
    locked = read(project, f"alpha==1 ; python_version > '3' {HASH} {HASH}\nbeta[x]==2 {HASH}\n")
    assert locked.locked
    assert "options --no-deps --require-hashes\n" in locked.inputs["about"]
    assert not read(project, f"alpha==1 {HASH}\nbeta\n").locked


def test_a_project_table_is_read_and_its_package_is_imported_from_the_code(project: Path) -> None:
    found = read_environment(project, project / "pyproject.toml", "")
    assert found.inputs["requirements.txt"] == "alpha >= 1\nbeta\n"
    assert "python >=3.10\n" in found.inputs["about"]
    assert found.paths == ()
    (project / "src").mkdir()
    assert read(project, f'{PROJECT}[build-system]\nrequires = ["x"]\n', "pyproject.toml").paths == ("src",)


def test_the_marks_of_windows_are_no_part_of_a_package(project: Path) -> None:
    (project / "requirements.txt").write_bytes(b"\xef\xbb\xbfalpha==1\r\nbeta\r\n")
    found = read_environment(project, project / "requirements.txt", "")
    assert found.inputs["requirements.txt"] == "alpha==1\nbeta\n"


def test_the_package_of_a_folder_in_the_project_is_imported_from_there(project: Path) -> None:
    (project / "sub/src").mkdir(parents=True)
    found = read(project, f'{PROJECT}[build-system]\nrequires = ["x"]\n', "sub/pyproject.toml")
    assert found.paths == ("sub/src",)


def test_conda_s_file_travels_as_it_is(project: Path) -> None:
    text = "dependencies:\n  - python=3.11\n  - pip:\n    - alpha==1\n"
    found = read(project, text, "environment.yml")
    assert found.inputs["environment.yml"] == text
    assert found.packages == 2


@pytest.mark.parametrize(
    "line",
    ["-e .", ".", "./lib", "alpha @ file:///x.whl", "alpha@./x", "x.whl", "--find-links w", "-f ./w", "../x"],
)
def test_what_is_only_on_this_machine_is_refused(project: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="does not travel"):
        read(project, f"beta\n{line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "--extra-index-url https://me:secret@index.example/simple",
        "alpha @ git+https://secret@git.example/alpha",
        "--index-url https://${TOKEN}/simple",
        "--index-url HTTPS://secret@index.example/simple",
    ],
)
def test_a_password_is_refused_and_not_repeated(project: Path, line: str) -> None:
    with pytest.raises(ConfigError, match="password or a variable") as refused:
        read(project, line)
    assert "secret" not in str(refused.value)
    read(project, "alpha @ git+ssh://git@git.example/alpha\n")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("requirements.txt", "-r requirements.txt", "itself"),
        ("requirements.txt", "-r ../elsewhere.txt", "outside the project"),
        ("pyproject.toml", '[project]\nname = "x"\ndynamic = ["dependencies"]', "has no list"),
        ("pyproject.toml", "[project", "cannot be read"),
        ("Pipfile", "", "none of the files"),
        ("environment.yml", "dependencies:\n- pip:\n  - -r requirements.txt\n", "of this machine"),
        ("environment.yml", "dependencies:\n- pip:\n  - -e .\n  - ./x\n", "of this machine"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_the_next_step(
    project: Path, name: str, text: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        read(project, text, name)
    assert refused.value.hint


def test_a_file_outside_the_project_or_none_is_refused(project: Path) -> None:
    for file in (project / "gone.txt", project.parent / "x.txt", project):
        with pytest.raises(ConfigError, match="is not a file of the project"):
            read_environment(project, file, "")


def test_uv_reads_its_own_lock(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of its name stands for uv, which prints what it has locked."""
    tool = project.parent / "uv"
    lock = 'version = 1\nrequires-python = ">=3.11"\n'
    for url in ("https://pypi.org/simple", "https://wheels.example/cpu", "/a/folder"):
        lock += f'[[package]]\nname = "x"\nsource = {{ registry = "{url}" }}\n'
    commit = "gamma @ git+https://git.example/gamma@0123456"
    monkeypatch.setenv("PATH", str(project.parent))
    with pytest.raises(ConfigError, match="not on PATH"):
        read(project, lock, "uv.lock")
    tool.write_text(f'#!/bin/sh\necho "alpha==1 {HASH}"\necho "{commit}"\necho "$*" >&2\n')
    tool.chmod(0o700)
    found = read_environment(project, project / "uv.lock", "")
    assert (found.locked, found.packages) == (True, 2)
    other = "--extra-index-url https://wheels.example/cpu\n"
    assert found.inputs["requirements.txt"] == f"{other}alpha==1 {HASH}\n"
    assert found.inputs["unhashed.txt"] == f"{other}{commit}\n"
    assert "python >=3.11\n" in found.inputs["about"]
    tool.write_text("#!/bin/sh\necho 'error: of another version' >&2\nexit 2\n")
    with pytest.raises(ConfigError, match="of another version"):
        read_environment(project, project / "uv.lock", "")


def test_the_most_exact_file_is_proposed(project: Path) -> None:
    assert find_file(project) == "pyproject.toml"
    (project / "requirements.txt").touch()
    assert find_file(project) == "requirements.txt"
    (project / "uv.lock").touch()
    assert find_file(project) == "uv.lock"
    assert find_file(project.parent) is None


def test_wheels_of_older_platforms_fit_a_newer_one() -> None:
    assert platforms("aarch64", "glibc", "2.17")[:2] == ["manylinux_2_17_aarch64", "manylinux2014_aarch64"]
    assert platforms("x86_64", "", "") == ["linux_x86_64"]


@pytest.mark.parametrize(
    ("runtime", "inputs"),
    [("pyxis", {}), ("none", {"environment.yml": ""}), ("none", {"x": "alpha @ https://a/b.zip"})],
)
def test_nothing_is_fetched_where_it_could_not_fit(runtime: str, inputs: dict[str, str]) -> None:
    cluster = Cluster(name="uni", host="uni", root="/r", container=runtime, packages="login")
    site = Site(cluster, cast("Any", None), Layout("/r", "/s"), None)
    with pytest.raises(ConfigError, match=r"fetche|address"):
        fetch(site, Environment("0" * 32, "x", 1, inputs=inputs), "", bar=cast("Any", None))


def test_where_no_package_is_named_nobody_is_asked(project: Path) -> None:
    site = Site(
        Cluster(name="uni", host="uni", root="/r", packages="login"),
        cast("Any", None),
        Layout("/r", "/s"),
        None,
    )
    fetch(site, read(project, "# none\n"), "", bar=cast("Any", None))


def test_a_foreign_record_cannot_name_a_path() -> None:
    sound = {"digest": "0" * 32, "file": "uv.lock", "packages": 3, "paths": ["src"]}
    assert is_sound(sound)
    for wrong in ({"digest": "../x"}, {"paths": ["../x"]}, {"paths": "x"}, {"packages": "3"}, {"file": None}):
        assert not is_sound({**sound, **wrong})
