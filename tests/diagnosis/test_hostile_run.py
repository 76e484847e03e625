"""`why` of a run directory into which a program has written whatever it liked."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterkit.diagnosis import diagnose
from tests.diagnosis.run_dirs import ask, diagnosis_of, evidence_of, make_run


def test_huge_files_and_pipes_do_not_hold_it_up(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    for name in ("attempts/0/log", "slurm.log", "heartbeat.json", "job.sh"):
        (run / name).unlink(missing_ok=True)
        with (run / name).open("wb") as file:
            file.truncate(1 << 40)
    (run / "attempts/0/stderr").unlink(missing_ok=True)
    os.mkfifo(run / "attempts/0/stderr")
    diagnose(evidence_of(run))


def test_a_job_script_is_read_and_never_run(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    (run / "job.sh").write_text(f"snapshot=$(touch {tmp_path}/ran)\nimage='`touch {tmp_path}/ran`'\n")
    diagnosis_of(run)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("line", "value"),
    [("'/a'\"'\"'b'", "/a'b"), ("/plain", "/plain"), ("'/with blank'", "/with blank"), ("'/open", "/open")],
)
def test_values_of_a_job_script_are_told_without_their_quotes(tmp_path: Path, line: str, value: str) -> None:
    run = make_run(tmp_path)
    (run / "job.sh").write_text(f"snapshot={line}\n")
    assert f"snapshot {value}\n" in ask(run)
