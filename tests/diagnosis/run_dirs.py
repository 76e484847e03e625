"""Run directories in which something went wrong, and the answers that why's own script gives about them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from clusterkit.diagnosis import Diagnosis, Evidence, Subject, diagnose, parse_evidence, question
from clusterkit.probes import script

RECORDED = Path(__file__).parent / "recorded"
"""What real clusters answered: `<cause>--<what was done>.txt`, written by tests/cluster/test_why.py."""


def recorded(name: str) -> str:
    """The only recorded answer whose name begins so."""
    (path,) = RECORDED.glob(f"{name}*.txt")
    return path.read_text()


def make_run(
    folder: Path,
    log: str = "",
    *,
    ended: dict[str, Any] | None = None,
    heartbeat: dict[str, Any] | None = None,
    slurm_log: str = "",
    script: str = "",
) -> Path:
    """A run directory after one start; `ended` left out is a program that ended with exit code 1."""
    run = folder / "runs" / "r-1"
    attempt = run / "attempts" / "0"
    attempt.mkdir(parents=True)
    start = {
        "attempt": 0,
        "job_id": "",
        "node": "a40n1",
        "started": int(time.time()) - 600,
        "restart_count": 0,
    }
    (attempt / "start.json").write_text(json.dumps(start))
    os.utime(attempt / "start.json", (time.time() - 600,) * 2)
    (attempt / "log").write_text(log)
    record = {"code": 1, "signal": None, "why": "failed", "ended": int(time.time())} | (ended or {})
    (attempt / "exit.json").write_text(json.dumps(record))
    if heartbeat is not None:
        (run / "heartbeat.json").write_text(json.dumps(heartbeat))
        written = heartbeat.get("time")
        if isinstance(written, int | float):  # as old as it says: the file's own age counts, too
            os.utime(run / "heartbeat.json", (written, written))
    if slurm_log:
        (run / "slurm.log").write_text(slurm_log)
    head = f"scratch_root={folder}/scratch\nsnapshot={folder}/code\n"
    (run / "job.sh").write_text(f"#!/bin/bash\n{head}{script}")
    return run


def ask(run: Path, job_id: str = "", *, scheduler: str = "local") -> str:
    """What the script prints about a run whose files are on this machine."""
    subject = Subject("r-1", job_id, str(run), scheduler=scheduler, profile="tiny")
    return subprocess.run(
        ["sh"], input=script([question(subject)]).encode(), capture_output=True, check=True, timeout=60
    ).stdout.decode("utf-8", "surrogateescape")


def evidence_of(run: Path) -> Evidence:
    return parse_evidence(ask(run))


def diagnosis_of(run: Path) -> Diagnosis:
    return diagnose(evidence_of(run))
