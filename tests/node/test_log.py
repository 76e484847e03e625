"""`clusterkit.log` in the program of a run: what it writes, and that it stops no program."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clusterkit.node import log as module
from clusterkit.results.logs.run_logs import RunLogs
from clusterkit.results.series import series

SOURCE = Path(module.__file__)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """The directory of a run, with the file that every run gets."""
    (tmp_path / "run" / "lib").mkdir(parents=True)
    shutil.copy(SOURCE, tmp_path / "run" / "lib" / "clusterkit.py")
    return tmp_path / "run"


def program(run_dir: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as launch.py does, by a Python that has no clusterkit."""
    known = {"CLUSTERKIT_RUN_DIR": str(run_dir), "CLUSTERKIT_ATTEMPT": "0", "PYTHONPATH": f"{run_dir}/lib"}
    return subprocess.run(
        [sys.executable, "-S", "-c", f"import clusterkit\n{code}"],
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **known, **env},
        cwd=run_dir,
        capture_output=True,
        text=True,
        check=False,
    )


def lines(run_dir: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def heartbeat(run_dir: Path) -> dict[str, object]:
    beat: dict[str, object] = json.loads((run_dir / "heartbeat.json").read_text())
    assert beat.pop("schema") == 1
    assert isinstance(beat.pop("time"), float)
    return beat


def test_numbers_become_lines_and_the_last_step_the_heartbeat(run_dir: Path) -> None:
    code = "for step in range(1, 4): clusterkit.log(step=step, total_steps=3, loss=1 / step, won=step == 3)"
    assert program(run_dir, code, CLUSTERKIT_ATTEMPT="2").stderr == ""
    for step, line in enumerate(lines(run_dir), 1):
        assert isinstance(line.pop("time"), float)
        assert line == {"kind": "train", "step": step, "attempt": 2, "loss": 1 / step, "won": step == 3}
    assert heartbeat(run_dir) == {"step": 3, "total_steps": 3, "attempt": 2}
    assert {path.name for path in run_dir.iterdir()} == {"lib", "metrics.jsonl", "heartbeat.json"}


def test_what_is_logged_is_read(run_dir: Path) -> None:
    program(run_dir, "clusterkit.log(step=1, loss=3)\nclusterkit.log(step=2, loss=float('nan'))")
    logs = RunLogs()
    logs.feed("metrics.jsonl", (run_dir / "metrics.jsonl").read_bytes())
    (first, (step, value)) = series(logs.rows, "loss").points
    assert (first, step, math.isnan(value)) == ((1, 3.0), 2, True)


def test_calls_are_counted_over_attempts_if_there_is_no_step(run_dir: Path) -> None:
    for attempt in ("0", "1"):
        code = "clusterkit.log(x=1)\nclusterkit.log(x=2)"
        assert program(run_dir, code, CLUSTERKIT_ATTEMPT=attempt, CLUSTERKIT_TOTAL_STEPS="8").returncode == 0
    assert [line["step"] for line in lines(run_dir)] == [1, 2, 3, 4]
    assert heartbeat(run_dir) == {"step": 4, "total_steps": 8, "attempt": 1}


def test_several_processes_may_log(run_dir: Path) -> None:
    code = "import os\nos.fork(); os.fork()\nfor step in range(50): clusterkit.log(step=step, loss=step)"
    assert program(run_dir, code).stderr == ""
    assert len(lines(run_dir)) == 200
    assert heartbeat(run_dir)["step"] == 49


def test_heartbeats_are_a_second_apart(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLUSTERKIT_RUN_DIR", str(run_dir))
    monkeypatch.setattr(module, "BEAT_SECONDS", 3600.0)
    monkeypatch.setattr(module._Said, "beaten", -7200.0)
    for step in (1, 2):
        module.log(step=step)
    assert heartbeat(run_dir)["step"] == 1
    module._beat(str(run_dir))
    assert heartbeat(run_dir)["step"] == 2
    assert not (run_dir / "metrics.jsonl").exists()


def test_a_place_that_cannot_be_written_is_told_once_and_stops_nothing(run_dir: Path) -> None:
    (run_dir / "metrics.jsonl").mkdir()
    done = program(run_dir, "for _ in range(3): clusterkit.log(x=1)\nprint('done')")
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert done.stderr.count("the run's numbers cannot be written: ") == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("time=3", "ValueError: 'time' is a name of clusterkit's own"),
        ("loss=None", "TypeError: "),
        ("loss=[1]", "TypeError: "),
    ],
)
@pytest.mark.parametrize("where", ["run", ""])
def test_what_is_no_number_is_refused_everywhere(run_dir: Path, call: str, error: str, where: str) -> None:
    done = program(run_dir, f"clusterkit.log({call})", CLUSTERKIT_RUN_DIR=str(run_dir) if where else "")
    assert error in done.stderr
    assert not (run_dir / "metrics.jsonl").exists()


def test_outside_a_run_nothing_happens(run_dir: Path) -> None:
    done = program(run_dir, "clusterkit.log(step=1, loss=2)", CLUSTERKIT_RUN_DIR="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in run_dir.iterdir()] == ["lib"]


def test_the_file_of_a_run_gives_way_to_an_installed_package(run_dir: Path) -> None:
    package = run_dir / "site" / "clusterkit"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("whole = True\n")
    (package / "part.py").write_text("there = True\n")
    code = "from clusterkit import part\nprint(clusterkit.whole, part.there, clusterkit.log.__module__)"
    done = program(run_dir, code, PYTHONPATH=f"{run_dir}/lib:{run_dir}/site")
    assert done.stdout == "True True clusterkit\n", done.stderr
