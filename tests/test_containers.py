"""containers/: the definition renders for every way to bootstrap and agrees with the rest of the project."""

from __future__ import annotations

import re
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
        ({}, "install.sh python3"),
        ({"python": "python3.13"}, "install.sh python3.13"),
        (
            {"torch_index": "https://x.example/cpu"},
            'install.sh python3 --extra-index-url "https://x.example/cpu"',
        ),
        ({"find_links": "/mnt", "no_index": True}, 'install.sh python3 --no-index --find-links "/mnt"'),
    ],
)
def test_post_is_one_command(variables: dict[str, object], command: str) -> None:
    assert parts(render(**variables))["post"].strip() == f"sh /opt/trainer/{command}"


def test_every_file_it_copies_is_shipped() -> None:
    wanted = [line.split()[0] for line in parts(render())["files"].splitlines() if line.strip()]
    assert {name for name in wanted if not (CONTAINERS / name).exists()} == {"constraints.txt"}
    assert (PROJECT / "constraints.txt").exists()


def test_the_requirements_are_the_train_extra() -> None:
    extra = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["optional-dependencies"][
        "train"
    ]
    lines = (CONTAINERS / "requirements.txt").read_text().splitlines()
    assert sorted(line for line in lines if line and not line.startswith("#")) == sorted(extra)


def test_the_dockerfile_makes_the_same_image() -> None:
    text = (CONTAINERS / "Dockerfile").read_text()
    assert "ARG BASE=" + header(render())["From"] in text
    assert "RUN sh /opt/trainer/install.sh python3" in text
    (copied,) = re.findall(r"^COPY (.+) /opt/trainer/$", text, flags=re.MULTILINE)
    assert {Path(name).name for name in copied.split()} == set(
        re.findall(r"[\w.]+(?= /opt)", parts(render())["files"])
    )
    assert all((PROJECT / name).exists() for name in copied.split())


def test_the_script_is_valid_posix_shell() -> None:
    subprocess.run(["sh", "-n", str(CONTAINERS / "install.sh")], check=True)
