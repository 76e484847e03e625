"""What a node and the container there say, judged."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

import pytest

from clusterkit.backends.checks import Answer, Outcome, Verdict
from clusterkit.checkup import container, node
from clusterkit.checkup.examination import scope_of
from clusterkit.checkup.node import Node
from clusterkit.config.models import Cluster, GpuTable, Profile, ProjectTable
from clusterkit.images.image import Image
from clusterkit.probes import Section
from tests.checkup.sites import answer

SHM = "Filesystem 1024-blocks Used Available Capacity Mounted on\ntmpfs 65536000 0 {free} 0% /dev/shm"
INSIDE: dict[str, Any] = {
    "python": "3.11.2",
    "temporary": {"folder": "/tmp"},
    "installers": {"venv": True, "ensurepip": False, "pip": True, "conda": ""},
    "torch": {"version": "2.9.0", "cuda": "12.8", "available": True, "device": "NVIDIA A40"},
    "rendering": {"backend": "egl", "version": "3.3.0", "faults": {}},
    "wandb": {"version": "0.31.0"},
}


PAIR = '{"seconds": 0.0001, "bytes_per_second": 1e9, "address": "10.0.0.1", "interface": "ib0"}'


AMD: dict[str, Any] = {"devices": (0, "dri\nkfd\nnull"), "kfd": (0, ""), "nvidia_smi": (127, "")}


def look(
    *,
    inside: dict[str, Any] | None = None,
    trains: bool = True,
    online: bool = False,
    packages: Literal["node", "login"] = "login",
    **parts: tuple[int, str],
) -> Node:
    said = {
        "about": (0, "host g1\nnow 1000\ntoken t\nscratch /scratch/me"),
        "clock": (0, "1000"),
        "prelude": (0, ""),
        "runtime": (0, "/usr/bin/apptainer\napptainer version 1.4.5"),
        "image": (0, "-r--r--r-- 1 1 1 5 Jan  1 00:00 /x.sif"),
        "scratch": (0, "/dev/sda1 1000000 0 500000 1% /scratch"),
        "binds": (0, ""),
        "devices": (0, "nvidia0\nnvidiactl\nnull"),
        "mps": (0, "/usr/bin/nvidia-cuda-mps-control"),
        "nvidia_smi": (0, "NVIDIA A40, 46068 MiB, 570.86.15"),
        "shm": (0, SHM.format(free=65536000)),
        "internet": (1, ""),
        "nodes": (0, f"[clusterkit] 2 nodes have met\n{PAIR}"),
        "inside": (0, "INFO: gocryptfs not found\n" + json.dumps({**INSIDE, **(inside or {})})),
    }
    cluster = Cluster(
        name="uni", host="uni", root="/share/me", prelude=("a",), binds=("/etc:/x",), packages=packages
    )
    profile = Profile.model_validate(
        {"name": "a40", "time": "4h", "gpu": "a40", "workers": 8, "scratch": "100M", "program": ("x",)}
    )
    return Node(
        cluster,
        profile,
        answer(**(said | parts)),
        Image("0" * 64, 5, "x86_64"),
        1003.0,
        trains,
        online,
        "w.org",
    )


CHECKS = (*node.CHECKS, *container.CHECKS)
JUDGES = {check.name: check.judge for check in CHECKS}


@pytest.mark.parametrize("name", JUDGES)
def test_a_node_on_which_all_is_well(name: str) -> None:
    verdict = JUDGES[name](look())
    assert verdict.outcome is Outcome.PASS, verdict


def judged(name: str, **found: Any) -> Verdict:
    return JUDGES[name](look(**found))


@pytest.mark.parametrize(
    ("driver", "cuda", "outcome"),
    [
        ("450.80.02", "11.8", Outcome.PASS),
        ("418.39", "11.8", Outcome.FAIL),
        ("525.60.13", "12.8", Outcome.PASS),
        ("515.65.01", "12.8", Outcome.FAIL),
        ("575.57.08", "13.0", Outcome.FAIL),
        ("580.65.06", "13.0", Outcome.PASS),
        ("470.57.02", None, Outcome.PASS),
        ("470.57.02", "99.0", Outcome.PASS),
    ],
)
def test_a_driver_against_a_cuda(driver: str, cuda: str | None, outcome: Outcome) -> None:
    torch = {"torch": {"version": "2", "cuda": cuda, "available": False, "why": "too old"}}
    verdict = judged("driver", inside=torch, nvidia_smi=(0, f"NVIDIA A40, 46068 MiB, {driver}"))
    assert verdict.outcome is outcome
    assert driver in verdict.evidence


@pytest.mark.parametrize(
    ("name", "found", "outcome", "evidence"),
    [
        (
            "prelude",
            {"prelude": (0, "`module load cuda` ended with status 127")},
            Outcome.FAIL,
            "`module load cuda` ended with status 127",
        ),
        (
            "prelude",
            {"prelude": (0, "`test -d /x` ended with status 1")},
            Outcome.WARN,
            "ended with status 1",
        ),
        (
            "prelude",
            {"prelude": (0, "`x` ended with status 1"), "runtime": (1, "")},
            Outcome.FAIL,
            "with status 1",
        ),
        ("runtime", {"runtime": (1, "")}, Outcome.FAIL, "apptainer is not on PATH on g1"),
        ("architecture", {"about": (0, "host g1\nmachine aarch64")}, Outcome.FAIL, "is for x86_64, and the"),
        ("image-visible", {"image": (2, "ls: cannot access '/x.sif'")}, Outcome.FAIL, "cannot access"),
        ("image-visible", {"image": (0, "-r--r--r-- 1 1 1 4 Jan 1 00:00 /x")}, Outcome.FAIL, "sees 4 bytes"),
        ("scratch", {"scratch": (1, "mkdir: Permission denied")}, Outcome.FAIL, "g1: mkdir: Permission"),
        (
            "scratch",
            {"scratch": (0, "/dev/sda1 9 0 51200 1% /s")},
            Outcome.FAIL,
            "50 MiB free in /scratch/me",
        ),
        (
            "nodes",
            {"nodes": (69, "[clusterkit] the nodes cannot meet: on g1, no ib9\nsrun: error")},
            Outcome.FAIL,
            "the nodes cannot meet: on g1, no ib9",
        ),
        ("nodes", {"nodes": (1, "srun: fatal")}, Outcome.FAIL, "srun: fatal"),
        ("gpu", {"devices": (0, "null"), "nvidia_smi": (127, "")}, Outcome.FAIL, "g1 has no GPU"),
        ("gpu", {"nvidia_smi": (127, "")}, Outcome.WARN, "nvidia-smi is not there"),
        ("gpu", AMD | {"kfd": (1, "")}, Outcome.FAIL, "you may not open /dev/kfd on g1"),
        ("gpu", AMD | {"devices": (0, "null")}, Outcome.FAIL, "g1 has no GPU"),
        ("mps", {"mps": (1, "")}, Outcome.WARN, "g1 has no nvidia-cuda-mps-control on PATH"),
        ("shared-memory", {"shm": (0, SHM.format(free=102400))}, Outcome.FAIL, "100 MiB free on g1, 128 MiB"),
        ("node-clock", {"clock": (0, "1700")}, Outcome.FAIL, "697 s ahead of the login node's"),
        ("node-clock", {"clock": (0, "900")}, Outcome.WARN, "43 s behind the login node's"),
        ("internet", {"online": True}, Outcome.FAIL, "g1 cannot reach w.org"),
        (
            "environment",
            {"inside": {"installers": {"venv": True}}},
            Outcome.FAIL,
            "neither ensurepip nor pip",
        ),
        ("environment", {"inside": {"installers": {"missing": ["find"]}}}, Outcome.FAIL, "with find"),
        ("environment", {"packages": "node"}, Outcome.WARN, "cannot reach w.org"),
        ("torch", {"inside": {"torch": {"fault": "no torch"}}}, Outcome.FAIL, "no torch"),
        ("torch", {"inside": {"torch": {"fault": "no torch"}}, "trains": False}, Outcome.SKIPPED, "your own"),
        ("cuda", {"inside": {"torch": {"version": "2+cpu", "cuda": None}}}, Outcome.FAIL, "without CUDA"),
        (
            "cuda",
            {"inside": {"torch": {"version": "2+cpu", "cuda": None}}, "trains": False},
            Outcome.WARN,
            "without CUDA; your own program",
        ),
        (
            "rendering",
            {"inside": {"rendering": {"backend": "osmesa", "version": "3", "faults": {"egl": "no EGL"}}}},
            Outcome.WARN,
            "egl does not render (no EGL); osmesa does",
        ),
    ],
)
def test_a_node_on_which_something_is_not(
    name: str, found: dict[str, Any], outcome: Outcome, evidence: str
) -> None:
    verdict = judged(name, **found)
    assert verdict.outcome is outcome, verdict
    assert evidence in verdict.evidence
    assert bool(verdict.cure) == (outcome in (Outcome.WARN, Outcome.FAIL))


def test_a_node_with_gpus_of_amd() -> None:
    verdict = judged("gpu", **AMD)
    assert (verdict.outcome, verdict.evidence) == (Outcome.PASS, "g1 has GPUs of AMD")
    report = {"version": "2.9.0", "cuda": None, "hip": "6.4.43482", "available": False, "why": "no GPU"}
    assert judged("torch", inside={"torch": report}).evidence == "2.9.0, ROCm 6.4.43482"
    assert judged("cuda", inside={"torch": report}).evidence == "no GPU"
    cluster = Cluster(name="u", host="u", root="/r", mps=True, gpus={"mi250x": GpuTable(vendor="amd")})
    profile = Profile.model_validate({"name": "p", "time": "4h", "gpu": "mi250x", "program": ("x",)})
    scope = scope_of(cluster, ProjectTable(name="p"), profile)
    names = {check.name for check in CHECKS if check.applies(scope)}
    assert "gpu" in names
    assert names.isdisjoint({"driver", "mps"})


@pytest.mark.parametrize(("wanted", "gpu"), [(True, "a40"), (False, "a40"), (True, None)])
def test_mps_is_looked_for_where_packs_are_to_use_it(wanted: bool, gpu: str | None) -> None:
    cluster = Cluster(name="uni", host="uni", root="/share/me", mps=wanted)
    profile = Profile.model_validate({"name": "p", "time": "4h", "gpu": gpu, "program": ("x",)})
    scope = scope_of(cluster, ProjectTable(name="p"), profile)
    names = {check.name for check in CHECKS if check.applies(scope)}
    assert ("mps" in names) == (wanted and gpu is not None)


@pytest.mark.parametrize(
    ("uses", "mode", "expected"),
    [
        ((), "offline", set()),
        ((), "online", {"wandb"}),
        (("torch",), "offline", {"torch", "cuda"}),
        (("mujoco", "wandb"), "offline", {"rendering", "wandb"}),
        (("wandb",), "disabled", set()),
    ],
)
def test_a_library_is_checked_where_the_program_uses_it(
    uses: tuple[str, ...], mode: str, expected: set[str]
) -> None:
    project = ProjectTable.model_validate({"name": "p", "wandb": {"mode": mode}})
    profile = Profile.model_validate({"name": "p", "time": "4h", "gpu": "a40", "program": ("x",)})
    scope = replace(scope_of(Cluster(name="uni", host="uni", root="/r"), project, profile), uses=uses)
    names = {check.name for check in container.CHECKS if check.applies(scope)}
    assert names & {"torch", "cuda", "rendering", "wandb"} == expected
    assert set(scope.tests()) == expected - {"cuda"}


def test_this_machine_without_a_gpu() -> None:
    """It has no table of GPUs to be mended."""
    there = look(devices=(0, "null"), nvidia_smi=(127, ""))
    here = replace(there, cluster=Cluster(name="local", kind="local", container="none", root="/r"))
    assert "clusters.uni.gpus" in JUDGES["gpu"](there).cure
    assert "without a GPU" in JUDGES["gpu"](here).cure


def test_a_container_that_does_not_start() -> None:
    found = look()
    silent = {**found.answer.parts, "inside": Section("inside", "FATAL: no such image", 255)}
    verdict = container.container(replace(found, answer=Answer(silent, whole=True)))
    assert verdict.outcome is Outcome.FAIL
    assert verdict.evidence == "FATAL: no such image"


@pytest.mark.parametrize("told", [True, False])
def test_a_prelude_that_ends_the_job(told: bool) -> None:
    """The job says that its shell was ended; one that is killed while it waits says nothing."""
    words = (
        1,
        "`false` ended with status 1\nthe prelude ended its shell with status 3: the program was not started",
    )
    found = look(prelude=words)
    begun = {name: found.answer[name] for name in ("about", "scratch", "shm", *(["prelude"] if told else []))}
    ended = replace(found, answer=Answer(begun, whole=False))
    asked = ("scratch", "prelude", "binds", "gpu", "runtime", "image-visible", "container")
    checks = [check for check in node.as_far_as_it_came(CHECKS) if check.name in asked]
    verdicts = {check.name: check.judge(ended) for check in checks}
    assert verdicts["scratch"].outcome is Outcome.PASS
    assert verdicts["prelude"].outcome is Outcome.FAIL
    assert "exit" in verdicts["prelude"].cure
    assert ("with status 3" in verdicts["prelude"].evidence) is told
    assert {verdicts[name].evidence for name in asked[2:]} == {"the job ended earlier, in prelude"}
