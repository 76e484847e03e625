"""containers/: the definition renders for every way to bootstrap and agrees with the rest of the project."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.cluster.image import PROJECT, render

CONTAINERS = PROJECT / "containers"


def parts(definition: str) -> dict[str, str]:
    """Text of each section by its name; the header is called `header`."""
    split = re.split(r"^%(\w+)\n", "%header\n" + definition, flags=re.MULTILINE)
    return dict(zip(split[1::2], split[2::2], strict=True))


def header(definition: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in parts(definition)["header"].splitlines() if line)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, {"Bootstrap": "docker", "From": "python:3.12-slim-bookworm"}),
        ({"from": "ubuntu:24.04"}, {"Bootstrap": "docker", "From": "ubuntu:24.04"}),
        (
            {"bootstrap": "debootstrap", "mirror": "http://mirror.example/debian"},
            {
                "Bootstrap": "debootstrap",
                "OSVersion": "bookworm",
                "MirrorURL": "http://mirror.example/debian",
            },
        ),
        ({"bootstrap": "localimage", "from": "old.sif"}, {"Bootstrap": "localimage", "From": "old.sif"}),
    ],
)
def test_the_header_names_the_base(variables: dict[str, str], expected: dict[str, str]) -> None:
    assert header(render(**variables)) == expected


@pytest.mark.parametrize(
    ("variables", "command"),
    [
        ({}, "install.sh python3 cuda"),
        ({"python": "python3.13"}, "install.sh python3.13 cuda"),
        ({"torch": "cpu"}, "install.sh python3 cpu --extra-index-url https://download.pytorch.org/whl/cpu"),
        (
            {"torch": "cpu", "find_links": "/mnt", "no_index": True},
            'install.sh python3 cpu --no-index --find-links "/mnt"',
        ),
    ],
)
def test_post_is_one_command(variables: dict[str, object], command: str) -> None:
    assert parts(render(**variables))["post"].strip() == f"sh /opt/trainer/{command}"


@pytest.mark.parametrize("torch", ["cuda", "cpu"])
def test_it_copies_how_to_install_and_nothing_of_ours_to_run(torch: str) -> None:
    wanted = [line.split()[0] for line in parts(render(torch=torch))["files"].splitlines() if line.strip()]
    assert wanted == ["install.sh", "locked.txt", f"locked-{torch}.txt"]
    assert all((CONTAINERS / name).exists() for name in wanted)


def test_its_test_stops_at_the_first_fault() -> None:
    shell, python = parts(render())["test"].split("<<'PYTHON'\n")
    assert (
        len([line for line in shell.splitlines() if line.strip() and not line.strip().startswith("#")]) == 1
    )
    compile(python.partition("PYTHON\n")[0], "%test", "exec")


def locked(name: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes of each package in a lock file."""
    text = (CONTAINERS / name).read_text().replace(" \\\n", "")
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    return {
        words[0].split("==")[0]: (words[0].split("==")[1], [word.split("sha256:")[1] for word in words[1:]])
        for words in lines
    }


@pytest.mark.parametrize("name", ["locked.txt", "locked-cuda.txt", "locked-cpu.txt"])
def test_every_package_is_locked_by_content(name: str) -> None:
    assert locked(name)
    for package, (version, digests) in locked(name).items():
        assert digests, f"{package} {version}"
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests)


def test_the_locks_hold_the_requirements_at_their_constraints() -> None:
    """When this fails: `python containers/lock.py`."""
    pins = dict(
        line.split("==")
        for line in (PROJECT / "constraints.txt").read_text().splitlines()
        if not line.startswith("#")
    )
    pins = {re.sub("[-_.]+", "-", name).lower(): version for name, version in pins.items()}
    both = locked("locked.txt") | locked("locked-cpu.txt")
    wanted = re.findall(
        r"^([A-Za-z0-9-]+)", (CONTAINERS / "requirements.txt").read_text(), flags=re.MULTILINE
    )
    assert {name.lower() for name in wanted} <= set(both)
    for name, (version, _) in (both | locked("locked-cuda.txt")).items():
        assert version.partition("+")[0] == pins.get(name, version.partition("+")[0]), name


def test_the_lock_takes_wheels_for_our_pythons_on_linux_only() -> None:
    module = runpy.run_path(str(CONTAINERS / "lock.py"))
    fits, name = module["fits"], module["normalised"]
    assert all(
        map(fits, ("py3-none-any", "cp312-cp312-manylinux_2_28_x86_64", "cp39-abi3-manylinux2014_aarch64"))
    )
    assert fits("py2.py3-none-manylinux_2_12_x86_64.manylinux2010_x86_64")
    wrong = ("cp310-cp310-manylinux_2_28_x86_64", "cp313-cp313t-manylinux_2_28_x86_64", "py2-none-any")
    wrong += ("cp312-cp312-win_amd64", "cp312-cp312-musllinux_1_2_x86_64", "cp312-cp312-macosx_11_0_arm64")
    assert not any(map(fits, wrong))
    assert name("Typing_Extensions") == "typing-extensions"


def test_the_requirements_are_the_train_extra() -> None:
    extra = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "train"
    ]
    lines = (CONTAINERS / "requirements.txt").read_text().splitlines()
    assert sorted(line for line in lines if line and not line.startswith("#")) == sorted(extra)


def test_the_dockerfile_makes_the_same_image() -> None:
    text = (CONTAINERS / "Dockerfile").read_text()
    assert "ARG BASE=" + header(render())["From"] in text
    assert 'sh /opt/trainer/install.sh python3 "$TORCH" "$@"' in text
    (copied,) = re.findall(r"^COPY (.+) /opt/trainer/$", text.replace("${TORCH}", "cuda"), flags=re.MULTILINE)
    assert {Path(name).name for name in copied.split()} == set(
        re.findall(r"[\w.-]+(?= /opt)", parts(render())["files"])
    )
    assert all((PROJECT / name).exists() for name in copied.split())


def test_the_definition_for_rocm_holds_what_the_other_does_but_torch() -> None:
    """It is not built here: no more is known of it."""
    own, usual = (parts(text) for text in ((CONTAINERS / "rocm.def").read_text(), render()))
    assert set(re.findall(r"[\w.-]+(?= /opt)", own["files"])) == {"locked.txt"}
    assert own["environment"] == usual["environment"]
    packages = re.findall(r"^packages='(.*)'", (CONTAINERS / "install.sh").read_text(), re.MULTILINE)
    assert set(packages[0].split()) <= set(own["post"].split())
    (version,) = re.findall(r"torch==(\d+)\.(\d+)", own["post"])
    assert (*map(int, version),) >= (2, 6)
    subprocess.run(["sh", "-n"], input=own["post"], text=True, check=True)


def test_the_script_is_valid_posix_shell() -> None:
    subprocess.run(["sh", "-n", str(CONTAINERS / "install.sh")], check=True)
