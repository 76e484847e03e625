"""The trainer image works on a node, as an ordinary user, without a GPU."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.image import INPUTS, PROJECT
from tests.cluster.laptop import on_share

FLAG = """
import importlib.util
file = importlib.util.find_spec("torch").origin
print(open(importlib.util.cache_from_source(file), "rb").read(8)[4], flush=True)
"""
CHECK = """
import runpy, sys
sys.argv[1:] = ["check", "--device", "cpu"]
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def image(cluster: Cluster, trainer_sif: Path) -> str:
    """Path of the image as the nodes see it."""
    return f"/share/{on_share(cluster, trainer_sif).relative_to(cluster.share)}"


def inside(cluster: Cluster, image: str, *argv: str, options: Sequence[str] = ()) -> str:
    run = ["apptainer", "-q", "exec", "--cleanenv", "--containall", "--env", "MUJOCO_GL=osmesa", *options]
    return cluster.run("a40n1", [*run, image, *argv], user=cluster.user, timeout=300).stdout


@pytest.fixture(scope="module")
def at_work(cluster: Cluster, image: str) -> list[str]:
    """What one process says that looks at PyTorch's bytecode, and then is `python -m trainer check`."""
    shutil.copytree(PROJECT / "trainer", cluster.share / "code/trainer")
    code = ["--bind", "/share/code:/code:ro", "--env", "PYTHONPATH=/code"]
    return inside(cluster, image, "python", "-c", FLAG + CHECK, options=code).splitlines()


def test_bytecode_is_there_and_does_not_go_stale(at_work: list[str]) -> None:
    """Without it, each start would compile all of torch; its flag 1 is `unchecked-hash` (PEP 552)."""
    assert at_work[0] == "1"


def test_the_trainers_own_check_passes(at_work: list[str]) -> None:
    """PyTorch computes, and Meta-World takes a step and is rendered."""
    said = "\n".join(at_work[1:])
    assert "FAILED" not in said
    assert "MT10 tasks 10" in said
    assert "reach-v3 takes a step" in said
    assert "rendering by osmesa" in said


def test_what_is_in_it_is_written_in_it(cluster: Cluster, image: str) -> None:
    listed = inside(cluster, image, "cat", "/opt/trainer/packages.txt").splitlines()
    assert {"torch==2.13.0+cpu", "mujoco==3.3.0", "metaworld==3.1.1"} <= set(listed)
    assert any(line.startswith("debian/libegl1==") for line in listed)
    locked = re.findall(r"^([\w.-]+==[^ ]+)", INPUTS[1].read_text(), flags=re.MULTILINE)
    named = {
        re.sub("[-_.]+", "-", line.partition("==")[0]).lower() + line[line.index("==") :] for line in listed
    }
    assert set(locked) <= named


def test_no_file_of_ours_is_in_it_but_how_it_was_made(cluster: Cluster, image: str) -> None:
    assert inside(cluster, image, "sh", "-c", "cd /opt && echo *").split() == ["trainer", "venv"]
    held = inside(cluster, image, "sh", "-c", "cd /opt/trainer && echo *").split()
    assert held == ["install.sh", "locked-cpu.txt", "locked.txt", "packages.txt"]
    find = "find / -xdev ( -name trainer -o -name clusterkit ) -not -path /proc/*"
    found = inside(cluster, image, *find.split()).split()
    assert found == ["/opt/trainer"]


def test_python_is_the_environment_made_for_it(cluster: Cluster, image: str) -> None:
    assert inside(cluster, image, "sh", "-c", "command -v python").strip() == "/opt/venv/bin/python"
