from __future__ import annotations

import contextlib
import io
import json
import math
import os
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from tests import forked
from tests.benchmarks import gpu_all, gpu_page, gpu_process
from tests.benchmarks.gpu_all import chosen
from tests.benchmarks.gpu_parts import CALLS, Part, Parts
from tests.benchmarks.gpu_predicted import OF_PARTS
from tests.benchmarks.gpu_process import GRACE, ROOT, Outcome, run
from tests.benchmarks.gpu_profile import table, watched
from tests.benchmarks.gpu_sizes import DRY


@pytest.mark.slow
def test_a_part_that_hangs_is_asked_and_then_made_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    polite = "trap 'exit 3' TERM; echo up; sleep 60 & wait"
    done = run(["sh", "-c", polite], 1, signal.SIGTERM)
    assert (done.code, done.output) == (3, "up\n")
    monkeypatch.setattr(gpu_process, "GRACE", 0.5)
    done = run(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], 0.5, signal.SIGTERM)
    assert done.code == -signal.SIGKILL
    assert done.summary()["exit_code"] != 0


@pytest.mark.slow
def test_a_part_that_fails_says_how_and_the_others_go_on(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {
        "broken": Part("", 1, lambda: {}["absent"]),
        "good": Part("", 1, lambda: {"found": 1}),
        "whole": Part("", 1, lambda: {"found": 2}, ("no_such_package",)),
    }
    monkeypatch.setattr(Parts, "all", lambda self: parts)
    monkeypatch.setattr(sys, "argv", ["gpu.sh", str(tmp_path / "result.json"), "--dry-run"])
    gpu_all.main()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["broken"] == {"error": "KeyError: 'absent'"}
    assert result["good"] == {"found": 1}
    assert result["whole"] == {"skipped": "needs no_such_package"}
    parts["good"] = Part("", 1, lambda: {"found": 3})
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--only", "good"])
    gpu_all.main()
    again = json.loads((tmp_path / "result.json").read_text())
    assert (again["good"], again["broken"]) == ({"found": 3}, result["broken"]), "others stay as they were"


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ("garbage", "cannot be read as a result"),
        ('{"name": "wheel"}', "is no result of gpu.sh"),
        ('{"dry_run": false, "speed": {}}', "holds what a GPU found; name another file"),
    ],
)
def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path, held: str, words: str) -> None:
    result = tmp_path / "result.json"
    result.write_text(held)
    with pytest.raises(SystemExit, match=f"result.json {words}"):
        gpu_all.begin(result, dry=True)
    assert result.read_text() == held


def test_a_file_that_cannot_be_written_is_found_before_anything_is_measured(tmp_path) -> None:
    with pytest.raises(SystemExit, match="cannot be written: No such file or directory"):
        gpu_all.begin(tmp_path / "absent" / "result.json", dry=True)


def test_a_part_that_does_not_exist_is_answered_with_those_that_do() -> None:
    parts = Parts(dry=True, ends=math.inf).all()
    assert list(chosen(parts, ["speed,machine", "seeds"])) == ["machine", "speed", "seeds"]
    with pytest.raises(SystemExit, match=r"no part 'profle'; did you mean profile\? The parts are machine,"):
        chosen(parts, ["profle"])


def test_several_runs_are_compared_with_one_of_the_same_call() -> None:
    found = {
        "mt10": {"exit_code": 0, "steps_per_second": 5000.0},
        "together": {"runs": 4, "steps_per_second": 7000.0},
        "pack": {"findings": [{"runs": 4, "steps_per_second": 12_345.0}]},
        "mps": {"skipped": "nvidia-cuda-mps-control is not here"},
    }
    assert gpu_all.over_one(found) == {"together": 1.4, "pack": 2.47}
    del found["mt10"]
    assert gpu_all.over_one(found) == {}


def test_the_page_is_what_the_script_makes_and_takes_nothing_of_a_dry_run() -> None:
    assert gpu_page.PAGE.read_text(encoding="utf-8") == gpu_page.page(gpu_all.read(gpu_page.RESULT))
    filled = {
        "machine": {"device": {"name": "NVIDIA H200", "torch": "2.13.0"}},
        "speed": {
            "findings": [
                {"batch": 512, "precision": "tf32", "captured": 1233.3, "path": "autograd, optimisers whole"}
            ]
        },
        "base": {"speed": {"findings": [{"batch": 512, "precision": "tf32", "captured": 1011.1}]}},
        "reference": {"findings": [{"batch": 512, "precision": "tf32", "reference_compiled": 2466.6}]},
        "run_profile": {"findings": [{"num_envs": 30, "count": 222.2, "microseconds": 777.7}]},
        "pack": {"findings": [{"steps_per_second": 24001.2}]},
        "seeds": {"findings": [{"recipe": "guide-mt10", "seeds": 8, "updates_per_second": 2222.2}]},
        "mt10": {"steps_per_second": 8000.4, "last": {"gpu/memory_bytes": 2**30}},
        "overlap": {"findings": [{"different": 3}]},
        "resume": {"whole": "a", "resumed": "b"},
        "two_million": {"success": 0.5, "sha256": "c"},
        "two_million_resumed": {"sha256": "c"},
    }
    page = gpu_page.page(filled)
    assert "NVIDIA H200, PyTorch 2.13.0. Autograd computed the updates;" in page
    assert "predicted only. 1 of 2 speeds are below their prediction. At a batch of " in page
    assert "512, one peer is ahead: LeanRL-like file, torch.compile and CUDA graph, 2.00x." in page
    cells = "| 1,233 | 1,011 |", "2,467 (2.00x) |", "| 2,222 |", "8,000", "1.00", "| 3 |", "50.0%"
    for cell in (*cells, "| different |", "| the same |", "| 222 | 778 | - |", "24,001 (3.00x)"):
        assert cell in page
    assert "Stable-Baselines3" not in page
    assert "What is missing, `gpu.sh --only speed,paper," in page
    nothing = gpu_page.page({})
    assert "##" not in nothing.replace("# GPU", ""), "a section has what was measured"
    assert ",sb3,reference,profile,run_profile,seeds," in nothing
    by_kernels = {"batch": 512, "precision": "tf32", "captured": 1233.3, "path": "kernels, optimisers whole"}
    page = gpu_page.page(filled | {"speed": {"findings": [by_kernels]}})
    assert "Autograd" not in page
    assert "2 of 2 speeds are below" in page, "what is predicted of kernels is more"
    assert gpu_page.page(filled | {"dry_run": True}) == gpu_page.page({})


def test_two_calls_of_the_first_hour_fit_into_fifteen_minutes() -> None:
    parts = Parts(dry=True, ends=math.inf).all()
    assert set(OF_PARTS) <= set(parts)
    starting, most = 2.0, 10.0 - GRACE / 60
    for machine in (("1", "2"), ("3", "4")):
        assert starting + sum(CALLS[number].minutes for number in machine) <= 15
    for call in CALLS.values():
        assert [*call.parts] == [name for name in parts if name in call.parts], "in the order of their worth"
        assert max(parts[name].seconds for name in call.parts) + GRACE <= 60 * call.minutes <= 60 * most


def test_all_kernels_are_counted_and_the_time_between_them() -> None:
    with watched() as profiler:
        for _ in range(2):
            torch.ones(3).add(1.0).mul(2.0)
            time.sleep(0.01)
    found = table(profiler, 2)
    calls = {one["name"]: one["calls"] for one in found["kernels"]}
    assert calls["aten::add"] == calls["aten::mul"] == 1.0
    assert found["count"] == sum(calls.values())
    assert found["microseconds"] == pytest.approx(
        sum(one["microseconds"] for one in found["kernels"]), abs=1.0
    )
    assert 5_000 <= found["gap_microseconds"] < found["span_microseconds"], "one sleep lies between two"


@pytest.mark.slow
def test_speeds_are_measured_of_another_checkout_as_well(
    tmp_path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    roots = []

    def run(argv: list[str], limit: float, stop: object, *, root: object) -> Outcome:
        roots.append((argv[2:4], root))
        return Outcome(0, '{"captured": 1.0}\n', 0.0)

    monkeypatch.setattr(gpu_process, "run", run)
    argv = ["gpu.sh", str(tmp_path / "out.json"), "--dry-run", "--only", "paper,bandwidth"]
    monkeypatch.setattr(sys, "argv", [*argv, "--base", str(tmp_path)])
    gpu_all.main()
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["base"] == {"paper": result["paper"]}, "copies are not the project's"
    assert f"predicted: {OF_PARTS['paper']}\n" in capsys.readouterr().out
    learner = "tests.benchmarks.gpu_learner"
    assert roots.index(([learner, "paper"], ROOT)) < roots.index(([learner, "paper"], tmp_path))
    assert ([learner, "bandwidth"], ROOT) in roots
    assert len(roots) == 3


@pytest.mark.slow
def test_what_needs_only_torch_runs_without_the_other_packages(tmp_path) -> None:
    for name in ("gymnasium", "metaworld", "mujoco"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('hidden')")
    words = ["out.json", "--dry-run", "--only", "bandwidth,overlap,mt10,a2c"]
    environ = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path)}
    script = ROOT / "tests/benchmarks/gpu.sh"
    done = subprocess.run([script, *words], cwd=tmp_path, env=environ, check=True, capture_output=True)
    assert b"not installed: gymnasium, metaworld, mujoco; left out: mt10, a2c" in done.stdout
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["mt10"] == {"skipped": "needs gymnasium, metaworld, mujoco"}
    assert result["overlap"]["findings"][0]["different"] == 0
    assert result["bandwidth"]["exit_code"] == 0


@pytest.mark.slow
def test_parts_without_time_are_named(tmp_path) -> None:
    """Of the script itself, wherever it is called."""
    words = ["out.json", "--dry-run", "--minutes", "0.01"]
    environ = os.environ | {"PYTHON": sys.executable}
    subprocess.run([ROOT / "tests/benchmarks/gpu.sh", *words], cwd=tmp_path, env=environ, check=True)
    result = json.loads((tmp_path / "out.json").read_text())
    assert "were left" in result["two_million"]["skipped"]


def run_warm(
    argv: list[str], limit: float, stop: signal.Signals = signal.SIGKILL, *, root: Path = ROOT
) -> Outcome:
    """As `run`, without imports."""
    program, *words = argv[2:]
    if program == "trainer":
        done = forked.run(words, folder=ROOT, env=os.environ, program=program)
        return Outcome(done.returncode, done.stdout + done.stderr, 0.0)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(sys, "argv", [program, *words])
        runpy.run_module(program, run_name="__main__")
    return Outcome(0, printed.getvalue(), 0.0)


@pytest.mark.slow
def test_parts_find_something_when_tried_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of each kind: `test_a_dry_run_finds_something_of_everything` has all of them."""
    monkeypatch.setattr(gpu_process, "run", run_warm)
    parts = Parts(dry=True, ends=math.inf).all()
    learners = "overlap", "speed", "equality", "reference", "seeds", "paper", "bandwidth", "profile", "micro"
    judge({name: parts[name].find() for name in (*learners, "mt10", "a2c")}, "mt10", "a2c")


@pytest.mark.exhaustive
def test_a_dry_run_finds_something_of_everything(tmp_path) -> None:
    environ = os.environ | {"PYTHON": sys.executable}
    begun = time.time()
    words = [ROOT / "tests/benchmarks/gpu.sh", "out.json", "--dry-run", "--minutes", "9"]
    subprocess.run(words, cwd=tmp_path, env=environ, check=True)
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["seconds"] <= time.time() - begun
    assert result["machine"]["exit_code"] == result["tests"]["exit_code"] == 0
    trained = "mt10", "mt10_30", "paper_mt10", "paper_mt10_30", "lockstep", "ppo", "a2c", "two_million"
    judge(result, *trained)
    assert result["resume"]["equal"]
    assert 0 < result["resume"]["killed_at"] < DRY.resumed_steps
    assert result["two_million_resumed"]["sha256"] == result["two_million"]["sha256"] is not None
    assert result["together"]["runs"] == 4
    of_run = result["run_profile"]["findings"][0]
    assert of_run["count"] > 20
    assert of_run["host"]["time/learn"] > 0
    assert result["pack"]["findings"][0]["codes"] == [0, 0]
    assert result["over_one"].keys() >= {"together", "pack"}
    assert result["two_million"]["success"] is not None
    assert result["environments"]["findings"][0]["env_steps_per_second"] > 0


def judge(result: dict[str, dict], *trained: str) -> None:
    for part in (
        "speed",
        "equality",
        "reference",
        "seeds",
        "paper",
        "bandwidth",
        "profile",
        "micro",
        *trained,
    ):
        assert result[part]["exit_code"] == 0, result[part]
    assert result["overlap"]["findings"][0]["different"] == 0
    assert result["speed"]["findings"][0]["captured"] > 0
    assert result["profile"]["findings"][0]["kernels"]
    assert result["speed"]["findings"][0]["path"] == "autograd, optimisers whole"
    kinds = [found["what"] for found in result["micro"]["findings"]]
    assert kinds == ["product"] * 6 + ["branches"] + ["optimizer"] * 2
    assert all(found["reference_eager"] > 0 for found in result["reference"]["findings"])
    assert {found["max_relative_difference"] for found in result["equality"]["findings"]} == {0.0}
    for part in trained:
        assert result[part]["steps"] == DRY.steps
        assert result[part]["steps_per_second"] > 0
