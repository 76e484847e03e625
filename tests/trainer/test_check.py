from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch

from trainer import check
from trainer.camera.rendering import probe
from trainer.check import CheckFinding
from trainer.errors import UsageError

NAMES = [
    "Python",
    "PyTorch",
    "Meta-World",
    "MT10 tasks",
    "environment",
    "rendering",
    "W&B",
    "shared memory",
    "CPUs",
]


@pytest.mark.slow
def test_the_report_of_this_machine(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    code = check.main(["--json"])
    report = json.loads(capsys.readouterr().out)
    found = {each["name"]: each for each in report["checks"]}
    assert report["works"] is (code == 0)
    # OpenGL may be missing where the tests run; everything else came with the package.
    rendering = found["rendering"]
    assert rendering["works"] or "apt-get install" in rendering["hint"]
    assert [name for name in NAMES if not found[name]["works"]] == [] + ["rendering"] * (
        not rendering["works"]
    )
    assert found["Meta-World"]["facts"].items() >= {"metaworld": "3.1.1", "mujoco": "3.3.0"}.items()
    assert found["MT10 tasks"]["text"] == "10"
    assert found["environment"]["text"].startswith("reach-v3 takes a step: 39 observations")
    assert found["shared memory"]["facts"]["total_bytes"] > 0
    # without a wish the first OpenGL that works is taken
    probes = rendering["facts"]["probes"]
    assert [each["backend"] for each in probes] == ["egl", "osmesa"][: len(probes)]
    if rendering["works"]:
        assert probes[-1]["size"] == [320, 240]
        assert [each["contrast"] > 10 for each in probes] == [False] * (len(probes) - 1) + [True]
    else:
        assert len(probes) == 2


@pytest.mark.slow
def test_each_fault_is_a_line_and_the_rest_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import metaworld  # noqa: F401 - while MUJOCO_GL is right: MuJoCo refuses to be imported with a wrong one

    monkeypatch.setenv("MUJOCO_GL", "bogus")
    monkeypatch.setitem(sys.modules, "wandb", None)  # what an import finds where it is not installed
    assert check.main(["--device", "cpu"]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("[check] MT10 tasks 10")
    assert lines[at + 2].startswith("[check] FAILED rendering: bogus: ")
    assert "libosmesa6" in lines[at + 3]
    assert lines[at + 4].startswith("[check] FAILED W&B: ModuleNotFoundError")
    assert "rebuild the image" in lines[at + 5]
    assert lines[at + 6].startswith("[check] shared memory ")
    assert lines[-1] == "[check] 2 of 10 checks FAILED: rendering, W&B"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_cuda_that_is_asked_for_and_absent_fails_loudly() -> None:
    finding = check.checks("cuda")[2]()
    assert not finding.works
    assert finding.text.startswith("CUDA is requested")
    assert "--device cpu" in finding.hint


def test_a_driver_that_crashes_kills_the_probe_only(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    crashed = probe("egl", {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert not crashed.works
    assert crashed.fault == "crashed with SIGSEGV"


def test_a_probe_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('no licence')\n")
    failed = probe("egl", {**os.environ, "PYTHONPATH": str(tmp_path)})
    assert "no licence" in failed.fault


def test_a_failed_line_says_what_to_do() -> None:
    assert CheckFinding("CPUs", True, "2").line() == "[check] CPUs 2"
    failed = CheckFinding("W&B", False, "it is not there", "install it").line()
    assert failed == "[check] FAILED W&B: it is not there\n[check]        install it"


def test_arguments() -> None:
    with pytest.raises(UsageError, match="did you mean --device"):
        check.main(["--devise=cpu"])
