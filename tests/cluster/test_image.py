"""The trainer image works on a node, as an ordinary user, without a GPU."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.image import INPUTS, PROJECT

STEPS_AND_A_FRAME = """
import importlib.util, metaworld, numpy, torch
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
import gymnasium
env = gymnasium.make("Meta-World/MT1", env_name="reach-v3", seed=1, render_mode="rgb_array")
env.reset()
for _ in range(50):
    observation, reward, *_ = env.step(env.action_space.sample())
assert numpy.isfinite(reward) and observation.shape == (39,), observation.shape
frame = env.render()
assert frame.ndim == 3 and frame.std() > 10, frame.std()
flag = open(importlib.util.cache_from_source(torch.__file__), "rb").read(8)[4]
print(len(ALL_V3_ENVIRONMENTS), torch.ones(2).sum().item(), flag, flush=True)
"""
CHECK = """
import runpy, sys
sys.argv[1:] = ["check", "--device", "cpu"]
runpy.run_module("trainer", run_name="__main__", alter_sys=True)
"""


@pytest.fixture(scope="module")
def image(cluster: Cluster, trainer_sif: Path) -> str:
    """Path of the image as the nodes see it."""
    shutil.copyfile(trainer_sif, cluster.share / "trainer.sif")
    return "/share/trainer.sif"


def inside(cluster: Cluster, image: str, *argv: str, options: Sequence[str] = ()) -> str:
    run = ["apptainer", "-q", "exec", "--cleanenv", "--containall", "--env", "MUJOCO_GL=osmesa", *options]
    return cluster.run("a40n1", [*run, image, *argv], user=cluster.user, timeout=120).stdout


@pytest.fixture(scope="module")
def at_work(cluster: Cluster, image: str) -> list[str]:
    """What one process says that steps Meta-World, and then is `python -m trainer check`."""
    shutil.copytree(PROJECT / "trainer", cluster.share / "code/trainer")
    code = ["--bind", "/share/code:/code:ro", "--env", "PYTHONPATH=/code"]
    return inside(cluster, image, "python", "-c", STEPS_AND_A_FRAME + CHECK, options=code).splitlines()


def test_meta_world_steps_and_renders_and_bytecode_does_not_go_stale(at_work: list[str]) -> None:
    """Without bytecode, each start would compile all of torch; its flag 1 is `unchecked-hash` (PEP 552)."""
    assert at_work[0].split() == ["50", "2.0", "1"]


def test_the_trainers_own_check_passes(at_work: list[str]) -> None:
    said = "\n".join(at_work[1:])
    assert "FAILED" not in said
    assert "MT10" in said


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
