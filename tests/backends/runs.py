"""A run directory made ready on this machine, and its job script run for real."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clusterkit.backends.group_script import GroupScript
from clusterkit.backends.job_script import JobScript, render
from clusterkit.backends.submission import Submission
from clusterkit.config.models import Cluster, Profile, Retry
from clusterkit.probes import script
from clusterkit.runs.record import RunRecord, parse_records, records
from tests.waiting import until

OF_CLUSTER = (
    *("arch", "container", "python", "prelude", "strict_prelude", "trust", "group", "interface", "gpus"),
)
LAUNCHER = Path(__file__).parents[2] / "clusterkit" / "node" / "launch.py"


def collect(*run_dirs: Path, seconds: float = 180) -> dict[str, RunRecord]:
    """Read run directories with the real shell fragment."""
    fragment = script([records([str(path) for path in run_dirs])])
    answer = subprocess.run(["sh"], input=fragment.encode(), capture_output=True, check=True, timeout=seconds)
    assert answer.stderr == b""
    return parse_records(answer.stdout.decode())


@dataclass
class Run:
    """One run below a root folder; `job` overrides fields of its JobScript."""

    root: Path
    argv: Sequence[str] = ("true",)
    env: Mapping[str, str] = field(default_factory=dict)
    python_path: Sequence[str] = ()
    job: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dir = self.root / "runs" / "run-1"
        self.code = self.root / "code"
        self.work = self.dir / "work"
        self.scratch = self.root / "scratch"
        self.dir.mkdir(parents=True, mode=0o700)
        self.code.mkdir()
        shutil.copy(LAUNCHER, self.dir)
        fields: dict[str, Any] = {
            "run_id": "run-1",
            "run_dir": str(self.dir),
            "snapshot": str(self.code),
            "scratch_root": str(self.scratch),
            "cache_root": str(self.root / "cache"),
            "python": sys.executable,
        }
        self.contents = job_script(**(fields | dict(self.job)))
        self.script = render(self.contents)
        self.path = self.dir / "job.sh"
        self.path.write_text(self.script)
        document = {
            "run_id": "run-1",
            "argv": list(self.argv),
            "env": dict(self.env),
            "python_path": list(self.python_path),
            "workdir": str(self.code),
        }
        (self.dir / "run.json").write_text(json.dumps(document, ensure_ascii=False))

    def start(self, *arguments: str, **env: str) -> subprocess.Popen[bytes]:
        """Start job.sh as a scheduler would, in a session of its own."""
        return subprocess.Popen(
            ["bash", str(self.path), *arguments],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, **env: str) -> int:
        """Run job.sh to its end; returns its exit code."""
        process = self.start(**env)
        self.output = process.communicate()[0].decode()
        return process.returncode

    def signalled(self, number: signal.Signals, **env: str) -> int:
        """Run job.sh, send it a signal once the program has written the file `ready`, wait for the end."""
        process = self.start(**env)
        until((self.dir / "ready").exists)
        process.send_signal(number)
        process.communicate()
        return process.returncode

    @property
    def record(self) -> RunRecord:
        """What the run directory says."""
        return collect(self.dir)[str(self.dir)]

    @property
    def exit(self) -> dict[str, Any]:
        """The newest attempt's exit record without its time."""
        newest = self.record.started
        assert newest is not None
        assert newest.exit is not None, self.log()
        assert abs(newest.exit["ended"] - time.time()) < 60
        return {name: value for name, value in newest.exit.items() if name != "ended"}

    def log(self, attempt: int = 0) -> str:
        """The log of one attempt."""
        return (self.dir / "attempts" / str(attempt) / "log").read_text()


def python(*lines: str) -> list[str]:
    """The argv of a Python program that tells `ready` and has `run_dir`, `os`, `signal`, `sys` and `time`."""
    head = ["import os, signal, sys, time", "run_dir = os.environ['CLUSTERKIT_RUN_DIR']"]
    head += ["def ready(): open(os.path.join(run_dir, 'ready'), 'w').close()"]
    return ["python", "-c", "\n".join([*head, *lines])]


def job_script(**words: Any) -> JobScript:
    """The job script of a run on a Slurm cluster.

    Args:
        words: fields of `JobScript`, of its cluster and of its submission; `nodes` and `nv`; and what is
            tried again: `memory_up_to` and `node_failures`.
    """
    retry = Retry.model_construct(**_taken(words, "memory_up_to", "node_failures"))
    gpu, nodes = "a40" if words.pop("nv", False) else None, words.pop("nodes", 1)
    cluster = Cluster.model_construct(**{"name": "far", "container": "none"} | _taken(words, *OF_CLUSTER))
    profile = Profile.model_construct(name="p", gpu=gpu, nodes=nodes, retry=retry)
    asked = Submission(**{"number": 0} | _taken(words, "number", "until_done", "verify_image", "options"))
    return JobScript(cluster=cluster, profile=profile, submissions=(asked,), **words)


def group_script(prelude: Sequence[str] = (), **words: Any) -> GroupScript:
    """The job script of a group's part, with a cluster's prelude; `words` are its other fields."""
    return GroupScript(cluster=Cluster.model_construct(name="far", prelude=prelude), **words)


def _taken(words: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: words.pop(name) for name in names if name in words}
