"""What a machine has, by its own words, and what a run would miss there."""

from __future__ import annotations

import subprocess

import pytest

from clusterkit.backends.local.backend import BACKEND, parse_machine
from clusterkit.hardware import Hardware, HardwareNeed, shortages
from clusterkit.probes import MARK, script

GIB = 1 << 30
LAPTOP = Hardware(cpus=2, memory=23 * GIB, gpus=(), disk=80 * GIB, disk_free=20 * GIB)
CARD = Hardware(cpus=16, memory=64 * GIB, gpus=(8 * GIB,), gpu_name="NVIDIA GeForce RTX 4060")


@pytest.mark.parametrize(
    ("has", "need", "words", "never"),
    [
        (LAPTOP, HardwareNeed(cpus=2, memory=4 * GIB), [], False),
        (
            LAPTOP,
            HardwareNeed(gpus=1, gpu="h200", without_gpu=False),
            ["1 h200 requested, no GPU available"],
            True,
        ),
        (
            LAPTOP,
            HardwareNeed(gpus=1, gpu="a40", without_gpu=True),
            ["1 a40 requested, no GPU available: the run trains on the CPUs"],
            False,
        ),
        (LAPTOP, HardwareNeed(cpus=16), ["16 CPUs requested, 2 available: the run is slower"], False),
        (
            LAPTOP,
            HardwareNeed(memory=48 * GIB),
            ["48 GiB memory requested, 23 GiB available: the run starts, and is killed if it uses more"],
            False,
        ),
        (
            LAPTOP,
            HardwareNeed(scratch=100 * GIB),
            ["100 GiB scratch requested, the disk has 80 GiB"],
            True,
        ),
        (
            LAPTOP,
            HardwareNeed(scratch=40 * GIB),
            ["40 GiB scratch requested, 20 GiB free: the disk may fill up"],
            False,
        ),
        (CARD, HardwareNeed(gpus=2, without_gpu=False), ["2 GPU requested, 1 available"], True),
        (
            CARD,
            HardwareNeed(gpus=1, gpu="h200", gpu_memory=141 * GIB, without_gpu=False),
            [
                "1 h200 with 141 GiB requested, NVIDIA GeForce RTX 4060 with 8.0 GiB available: the run "
                "may not fit"
            ],
            False,
        ),
        (CARD, HardwareNeed(gpus=1, gpu="rtx4060", gpu_memory=8 * GIB, without_gpu=False), [], False),
        (
            Hardware(),
            HardwareNeed(cpus=99, memory=GIB << 9, gpus=8, scratch=GIB << 9, without_gpu=False),
            [],
            False,
        ),
    ],
)
def test_what_is_missing_and_whether_that_is_the_end(
    has: Hardware, need: HardwareNeed, words: list[str], never: bool
) -> None:
    found = shortages(has, need)
    assert [str(one) for one in found] == words
    assert any(one.never for one in found) is never


def test_the_worst_comes_first() -> None:
    assert [one.never for one in shortages(LAPTOP, HardwareNeed(cpus=9, gpus=1, without_gpu=False))] == [
        True,
        False,
    ]


def test_this_machine_tells_what_it_has() -> None:
    said = subprocess.run(
        ["sh"], input=script([BACKEND.machine("/nowhere/at/all")]), capture_output=True, text=True, check=True
    )
    has = parse_machine(f"a banner\n{said.stdout}goodbye\n")
    assert said.stderr == ""
    assert has.cpus
    assert has.disk
    assert has.disk_free is not None
    assert GIB // 4 < (has.memory or 0) < 1 << 50


@pytest.mark.parametrize(
    ("lines", "has"),
    [
        (
            ["cpus 8", "memory 33554432", "limit 4294967296", "disk 100 50", "gpu 8188, NVIDIA L4"],
            Hardware(8, 4 * GIB, (8188 << 20,), "NVIDIA L4", 100 << 10, 50 << 10),
        ),
        (["cpus 8", "limit max", "limit 9223372036854771712", "device /dev/kfd"], Hardware(8)),
        (
            ["cpus ", "memory 0", "disk - -", "gpu [N/A], Odd, name"],
            Hardware(gpus=(None,), gpu_name="Odd, name"),
        ),
    ],
)
def test_answers_are_read(lines: list[str], has: Hardware) -> None:
    assert parse_machine("\n".join([f"{MARK} begin machine", *lines, f"{MARK} status 0", ""])) == has


def test_an_answer_cut_short_leaves_all_open() -> None:
    assert parse_machine(f"{MARK} begin machine\ncpus 8\n") == Hardware()
