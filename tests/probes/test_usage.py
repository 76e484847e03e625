"""What a run uses: the parser on recorded text, and the script run for real beside a process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.errors import RunError
from clusterkit.probes import MARK
from clusterkit.probes.usage import Usage, UsageReader, usage_argv
from tests.programs import write_program
from tests.waiting import until

BEGIN = f"{MARK} begin 100 4096 8 a40n1\n"


def sample(
    moment: float, gpu: str, ticks: int, memory: str = "49152\n1000000000\n2000000000\n400000000"
) -> str:
    stat = f"41 (python (x) y) S 1 41 41 0 -1 4194560 1 0 0 0 {ticks} 50 0 0 20 0 1 0 7 1 1"
    return (
        f"{MARK} sample {moment}\n{MARK} heartbeat\n"
        '{"step": 5, "total_steps": 10}\n\n'
        f"{MARK} gpu {gpu}\n{MARK} memory {memory}\n{MARK} stat\n{stat}\n{MARK} processes\n"
        f"     41 512 33.0 /opt/venv/bin/python3 train.py --x 'a  b'\n   7x\n{MARK} end\n"
    )


def read(*texts: str) -> list[Usage]:
    reader = UsageReader()
    return [usage for text in texts for usage in reader.feed(text.encode())]


A40 = "0\n0, NVIDIA A40, 87, 31234, 46068, 271.33, 64\n1, NVIDIA A40, [N/A], 1, 46068, [Not Supported], N/A"


def test_two_samples_give_rates() -> None:
    first, second = read(BEGIN + sample(100.0, A40, 1000), sample(102.0, A40, 1300))
    assert (first.cpu, first.processes[0].cpu) == (None, 0.33)
    assert second.cpu == second.processes[0].cpu == pytest.approx(1.5)
    assert (second.node, second.cpus, second.time) == ("a40n1", 8, 102.0)
    assert second.heartbeat == {"step": 5, "total_steps": 10}
    assert (second.memory_bytes, second.memory_limit_bytes) == (600_000_000, 2_000_000_000)
    assert second.processes[0].rss_bytes == 512 * 1024
    assert second.processes[0].command == "/opt/venv/bin/python3 train.py --x 'a  b'"


def test_gpus_and_what_they_do_not_tell() -> None:
    one, other = read(BEGIN + sample(1.0, A40, 0))[0].gpus
    assert (one.index, one.name, one.utilization, one.power_watts) == (0, "NVIDIA A40", 0.87, 271.33)
    assert (one.memory_used_bytes, one.temperature_celsius) == (31234 << 20, 64.0)
    assert (other.utilization, other.power_watts, other.temperature_celsius) == (None, None, None)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("127", "there is no nvidia-smi and no rocm-smi on the node"),
        ("124\n", "nvidia-smi does not answer"),
        ("6\nNo devices were found", "nvidia-smi says: No devices were found"),
        ("9\nNVIDIA-SMI has failed because it couldn't communicate\nMake sure", "couldn't communicate"),
    ],
)
def test_no_gpu_is_said(answer: str, problem: str) -> None:
    (usage,) = read(BEGIN + sample(1.0, answer, 0))
    assert usage.gpus == ()
    assert usage.gpu_problem is not None
    assert problem in usage.gpu_problem
    assert usage.processes


MI250X = """
WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

device,Temperature (Sensor edge) (C),Temperature (Sensor junction) (C),Temperature (Sensor memory) (C),\
Average Graphics Package Power (W),GPU use (%),VRAM Total Memory (B),VRAM Total Used Memory (B),Card Series,\
Card Model,Card Vendor,Card SKU
card4,N/A,41.0,48.0,302.0,97,68702699520,31236030464,AMD INSTINCT MI250X,0x740c,Advanced Micro Devices Inc. \
[AMD/ATI],D65209
card5,N/A,39.0,46.0,N/A,3,68702699520,10960896,AMD INSTINCT MI250X,0x740c,Advanced Micro Devices Inc. \
[AMD/ATI],D65209"""
"""Composed as rocm-smi's source does, not recorded; ROCm 5 says "Card series"."""


@pytest.mark.parametrize("series", ["Card Series", "Card series"])
def test_gpus_of_amd(series: str) -> None:
    (usage,) = read(BEGIN + sample(1.0, f"0\n{MI250X.replace('Card Series', series)}", 0))
    one, other = usage.gpus
    assert (one.index, one.name, one.utilization, one.power_watts) == (4, "AMD INSTINCT MI250X", 0.97, 302.0)
    assert (one.memory_used_bytes, one.memory_total_bytes) == (31236030464, 68702699520)
    assert (one.temperature_celsius, other.temperature_celsius) == (41.0, 39.0)
    assert (other.index, other.utilization, other.power_watts) == (5, 0.03, None)
    assert usage.gpu_problem is None


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine's is asked first")
@pytest.mark.parametrize(
    ("env", "asked"),
    [
        ({"SLURM_STEP_GPUS": "4,5", "ROCR_VISIBLE_DEVICES": "0,1"}, "-d 4 5 "),
        ({"ROCR_VISIBLE_DEVICES": "2"}, "-d 2 "),
        ({"ROCR_VISIBLE_DEVICES": "GPU-5f1e"}, ""),
        ({}, ""),
    ],
)
def test_the_script_asks_rocm_smi_for_the_jobs_own(tmp_path: Path, env: dict[str, str], asked: str) -> None:
    (tmp_path / "answer").write_text(MI250X)
    write_program(tmp_path, "rocm-smi", f'echo "$*" >{tmp_path}/asked; cat {tmp_path}/answer')
    argv = usage_argv(str(tmp_path), 0, seconds=1, count=1)
    others = {name: text for name, text in os.environ.items() if not name.startswith(("SLURM_", "ROCR_"))}
    env = {**others, **env, "PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env)
    (usage,) = read(done.stdout)
    assert [gpu.index for gpu in usage.gpus] == [4, 5]
    assert (tmp_path / "asked").read_text().startswith(f"{asked}--showproductname --showuse")


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        ("2048", (512 * 1024, 2048 << 20)),  # no control group: the processes' own, and what was asked for
        ("", (512 * 1024, None)),
        ("\n1000\nmax\n200", (800, None)),
        ("1\n1000\n9223372036854771712\n200", (800, 1 << 20)),
    ],
)
def test_memory(memory: str, expected: tuple[int, int | None]) -> None:
    (usage,) = read(BEGIN + sample(1.0, "127", 0, memory))
    assert (usage.memory_bytes, usage.memory_limit_bytes) == expected


def test_pieces_of_any_size() -> None:
    text = (BEGIN + sample(100.0, A40, 1000) + sample(102.0, A40, 1300)).replace("A40", "Ä40").encode()
    reader = UsageReader()
    found = [one for position in range(len(text)) for one in reader.feed(text[position : position + 1])]
    assert [one.gpus[0].name for one in found] == ["NVIDIA Ä40"] * 2


def test_damaged_samples_are_left_out() -> None:
    good = sample(100.0, "127", 0)
    assert len(read("noise\n", BEGIN, f"{MARK} sample soon\n{MARK} end\n", f"{MARK} end\n", good)) == 1


def test_numbers_that_are_none_are_left_out() -> None:
    for number in ("9" * 5000, "²", "-1", "1e9", "nan", ""):
        begin = f"{MARK} begin {number} 4096 {number} a40n1\n"
        text = sample(
            100.0, f"{number}\n{number}, A40, {number}, {number}, 1, 1, 1", 0, f"{number}\n{number}"
        )
        text = text.replace("41 (python", f"{number} (python").replace("     41 512", f"{number} {number}")
        (usage,) = read(begin, text)
        assert (usage.cpus, usage.gpus, usage.processes) == (None, (), ())
        assert (usage.memory_bytes, usage.memory_limit_bytes) == (0, None)


def test_a_sample_without_an_end_is_not_kept() -> None:
    reader = UsageReader()
    assert not any(usage for _ in range(400) for usage in reader.feed(b"y\n" * 10_000))
    with pytest.raises(RunError, match=r"without end what tells nothing about the run: .*y / y"):
        list(reader.feed(b"y\n" * 1_000_000))


@pytest.mark.needs("procfs", "ps")
def test_a_run_that_anothers_process_trains_uses_what_that_uses(tmp_path: Path) -> None:
    path = f"{write_program(tmp_path, 'ps', 'exit 127')}:{os.environ['PATH']}"  # a small system has none
    met = {**os.environ, "CLUSTERKIT_TOGETHER": str(tmp_path)}
    own, leads = (met | {"CLUSTERKIT_RUN_DIR": str(tmp_path / name)} for name in ("own", "leads"))
    started = [subprocess.Popen(["sleep", "60"], env=env) for env in (own, leads, met)]
    try:
        argv = usage_argv(str(tmp_path / "own"), 0, seconds=1, count=1)
        env = {**os.environ, "PATH": path}
        (found,) = read(subprocess.run(argv, capture_output=True, text=True, timeout=60, env=env).stdout)
        assert {one.pid for one in found.processes} == {process.pid for process in started[:2]}
        assert {one.command for one in found.processes} == {"sleep 60"}
        assert all(0 < one.rss_bytes < 1 << 26 for one in found.processes)
        assert all(one.cpu is not None for one in found.processes)
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.slow
@pytest.mark.needs("procfs")
def test_the_script_finds_the_run_and_its_children_only(tmp_path: Path) -> None:
    run_dir = tmp_path / "run [1] * .x"
    (run_dir / "attempts" / "0").mkdir(parents=True)
    busy = "import os; os.fork()\nwhile True: pass"
    env = {**os.environ, "CLUSTERKIT_RUN_DIR": str(run_dir)}
    programs = [
        subprocess.Popen([sys.executable, "-c", busy], env=env, start_new_session=True),
        subprocess.Popen(["sleep", "60"], env=env | {"CLUSTERKIT_RUN_DIR": f"{run_dir}2"}),
    ]
    try:
        children = Path(f"/proc/{programs[0].pid}/task/{programs[0].pid}/children")
        until(children.read_text)
        argv = usage_argv(str(run_dir), 0, seconds=1, count=2)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        _, second = read(done.stdout)
        assert len(second.processes) == 2
        assert {str(one.pid) for one in second.processes} > {str(programs[0].pid)}
        assert second.cpu is not None
        assert second.cpu > 0.05
        assert second.memory_bytes
        (run_dir / "attempts/0/exit.json").touch()
        argv = usage_argv(str(run_dir), 0, seconds=1, count=None)
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert len(read(ended.stdout)) == 1
    finally:
        os.killpg(programs[0].pid, 9)
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.parametrize(("told", "age"), [(2000, 10), (9995, 5), (99999, 10)])
def test_a_heartbeat_is_as_old_as_its_time_or_its_file_says(told: int, age: int) -> None:
    """The program's clock may be another than that of its node's files."""
    beat = json.dumps({"time": told, "step": 5})
    text = f"{MARK} sample 10000\n{MARK} heartbeat 9990\n{beat}\n{MARK} gpu 127\n{MARK} end\n"
    (usage,) = UsageReader().feed(text.encode())
    assert usage.heartbeat_age == age
