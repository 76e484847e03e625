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

import pytest

from tests import forked
from tests.benchmarks import gpu_all
from tests.benchmarks.gpu_all import ROOT, Outcome, Parts, run


def test_a_part_that_hangs_is_asked_and_then_made_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    polite = "trap 'exit 3' TERM; echo up; sleep 60 & wait"
    done = run(["sh", "-c", polite], 1, signal.SIGTERM)
    assert (done.code, done.output) == (3, "up\n")
    monkeypatch.setattr(gpu_all, "GRACE", 0.5)
    done = run(["sh", "-c", "trap '' TERM; while :; do sleep 0.1; done"], 0.5, signal.SIGTERM)
    assert done.code == -signal.SIGKILL
    assert done.summary()["exit_code"] != 0


def test_a_part_that_fails_says_how_and_the_others_go_on(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = {"broken": lambda: {}["absent"], "good": lambda: {"found": 1}}
    monkeypatch.setattr(Parts, "all", lambda self: parts)
    monkeypatch.setattr(sys, "argv", ["gpu.sh", str(tmp_path / "result.json"), "--dry-run"])
    gpu_all.main()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["broken"] == {"error": "KeyError: 'absent'"}
    assert result["good"] == {"found": 1}


def test_parts_without_time_are_named(tmp_path) -> None:
    """Of the script itself, wherever it is called."""
    words = ["out.json", "--dry-run", "--minutes", "0.01"]
    environ = os.environ | {"PYTHON": sys.executable}
    subprocess.run([ROOT / "tests/benchmarks/gpu.sh", *words], cwd=tmp_path, env=environ, check=True)
    result = json.loads((tmp_path / "out.json").read_text())
    assert "were left" in result["two_million"]["skipped"]


def run_warm(argv: list[str], limit: float, stop: signal.Signals = signal.SIGKILL) -> Outcome:
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
def test_every_part_finds_something_when_tried_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_all, "run", run_warm)
    parts = Parts(dry=True, ends=math.inf).all()
    elsewhere = "machine", "tests", "compiled", "two_million"  # the last one is mt10 for longer
    judge({name: part() for name, part in parts.items() if name not in elsewhere}, "mt10", "paper_mt10")


@pytest.mark.exhaustive
def test_a_dry_run_finds_something_of_everything(tmp_path) -> None:
    environ = os.environ | {"PYTHON": sys.executable}
    begun = time.time()
    subprocess.run(
        [ROOT / "tests/benchmarks/gpu.sh", "out.json", "--dry-run"], cwd=tmp_path, env=environ, check=True
    )
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["seconds"] <= time.time() - begun
    assert result["machine"]["exit_code"] == result["tests"]["exit_code"] == 0
    judge(result, "mt10", "paper_mt10", "two_million")


def judge(result: dict[str, dict], *trained: str) -> None:
    for part in ("speed", "equality", "reference", "seeds", "paper", *trained):
        assert result[part]["exit_code"] == 0, result[part]
    assert result["speed"]["findings"][0]["captured"] > 0
    assert all(found["reference"] > 0 for found in result["reference"]["findings"])
    assert {found["max_relative_difference"] for found in result["equality"]["findings"]} == {0.0}
    for part in trained:
        assert result[part]["steps"] == 1000
        assert result[part]["steps_per_second"] > 0
