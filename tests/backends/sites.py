"""A run on a Slurm whose commands are small scripts: they note their calls and answer as told."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from tests.backends.runs import Run, python
from tests.programs import write_program

SETTING = (
    "def save(step): os.makedirs(f'{run_dir}/checkpoints/step-{step:012d}')",
    "attempt = int(os.environ['CLUSTERKIT_ATTEMPT'])",
)
FURTHER = "save((attempt + 1) * 100)"
"""Each attempt of such a program gets a hundred steps further."""


class Site:
    """A run, and a Slurm around it that answers as told."""

    def __init__(self, root: Path, argv: list[str], way: str, **job: Any) -> None:
        self.run = Run(root, argv, job={"until_done": way or None, **job})
        self.bin = root / "bin"
        self.calls_file = root / "calls"
        self.calls_file.touch()
        self.number = 7
        for name in ("scontrol", "scancel"):
            self.answers(name, "")
        self.answers("squeue", "echo RUNNING")

    def answers(self, name: str, script: str) -> None:
        """Let a command do this after it has noted its arguments."""
        write_program(self.bin, name, f'echo {name} "$@" >>{self.calls_file}\n{script}')

    @property
    def calls(self) -> list[str]:
        """The commands that change something, in order."""
        lines = self.calls_file.read_text().splitlines()
        return [line for line in lines if not line.startswith("squeue")]

    def env(self, **more: str) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "SLURM_JOB_ID": str(self.number), **more}

    def attempt(self, **env: str) -> int:
        """One attempt, to its end."""
        return self.run.run(**self.env(**env))

    def request(self) -> None:
        """request.json as clusterkit leaves it."""
        folder = self.run.dir / "submissions/0"
        folder.mkdir(parents=True)
        document = {
            "schema": 1,
            "number": 0,
            "kind": "first",
            "created": "x",
            "options": ["--a=b"],
            "argv": None,
        }
        (folder / "request.json").write_text(json.dumps(document, indent=2))


def site(tmp_path: Path, *lines: str, way: str = "requeue", **job: Any) -> Site:
    return Site(tmp_path, python(*SETTING, *lines), way, **job)


def stopped(run: Run) -> str | None:
    path = run.dir / "stopped.json"
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    assert abs(record["time"] - time.time()) < 60
    return str(record["why"])


def chain(tmp_path: Path, *lines: str) -> Site:
    here = site(tmp_path, *lines, way="chain")
    here.request()
    here.answers("sbatch", "env | grep -c '^S[BL][A-Z]*_' >>$0.env; echo 'Welcome'; echo '8;cluster'")
    return here
