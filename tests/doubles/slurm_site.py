"""A project whose cluster is a loopback sshd with a squeue and a sacct that say what a test wants.

The connection, the shell fragments, the run directories and the ledger are real; only Slurm's two tools are
small programs on PATH that print a file and count their calls. For thousands of runs, and for faults that a
real Slurm shows once a year.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from clusterkit.backends.jobs import JobState
from clusterkit.config.settings import Settings, load_settings
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.state import RunState, to_text
from tests import forked
from tests.allowing import allow, state
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.programs import write_program

SETTINGS = """
[project]
name = "journey"
default_cluster = "far"
program = ["true"]

[clusters.far]
host = "node"
ssh_config = "{ssh_config}"
root = "{root}"
container = "none"
"""

TOOL = """
echo "{name} $*" >>{folder}/calls
[ ! -e {folder}/{name}.seconds ] || sleep "$(cat {folder}/{name}.seconds)"
cat {folder}/{name}.out
[ ! -e {folder}/{name}.error ] || {{ cat {folder}/{name}.error >&2; exit 1; }}
"""

TOTAL = 2_000_000


@dataclass(frozen=True)
class Member:
    """One run as the site shall know it."""

    number: int
    state: JobState
    group: str = ""
    step: int = TOTAL // 4

    @property
    def job_id(self) -> str:
        """Of Slurm."""
        return str(700_000 + self.number)

    @property
    def run_id(self) -> str:
        """Sorts by number."""
        return f"a40-2m-20260101-{self.number:06}-k3f9"


RUNNING, WAITING = Member(1, JobState.RUNNING), Member(2, JobState.PENDING)
DONE, FAILED = Member(3, JobState.COMPLETED), Member(4, JobState.FAILED)
EVERYONE = [RUNNING, WAITING, DONE, FAILED]


class SlurmSite:
    """Everything in one folder: the sshd, the tools, the work root, the project. Close it at the end.

    For who takes the time of a command it starts `cold`, as a person's does.
    """

    def __init__(self, folder: Path, *, cold: bool = False) -> None:
        self._cold = cold
        self.folder, self.root, self.project = folder, folder / "root", folder / "journey"
        self.bin = folder / "bin"
        for path in (self.bin, self.root / "runs", self.project):
            path.mkdir(parents=True)
        path = f"{self.bin}:/usr/local/bin:/usr/bin:/bin"
        self.server = LoopbackSshd(folder / "sshd", lines=[f"SetEnv HOME={folder}/sshd/home PATH={path}"])
        text = SETTINGS.format(ssh_config=self.server.ssh_config, root=self.root)
        (self.project / "clusterkit.toml").write_text(text)
        allow(self.project)
        for name in ("squeue", "sacct"):
            self.tool(name, TOOL.format(name=name, folder=folder))
            self.says(name)

    def close(self) -> None:
        """End the sshd."""
        self.server.close()

    def says(
        self, tool: str, rows: Iterable[str] = (), *, error: str | None = None, seconds: float = 0
    ) -> None:
        """What `squeue` or `sacct` prints from now on; an `error` makes it fail."""
        (self.folder / f"{tool}.out").write_text("".join(f"{row}\n".replace("|", "\x1f") for row in rows))
        for name, value in (("error", error), ("seconds", seconds or None)):
            path = self.folder / f"{tool}.{name}"
            path.unlink(missing_ok=True)
            if value is not None:
                path.write_text(f"{value}\n")

    def tool(self, name: str, body: str) -> None:
        """Puts a shell script in the place of one of the site's programs."""
        write_program(self.bin, name, body)

    def settings(self) -> Settings:
        """Returns the project's settings."""
        return load_settings(config=self.project / "clusterkit.toml")

    def run_dir(self, member: Member) -> Path:
        """Returns a run's folder on the cluster."""
        return self.root / "runs" / member.run_id

    def answers(self, members: Sequence[Member]) -> None:
        """Let both tools tell of these runs: squeue of those that live, sacct of all."""
        self.says("squeue", [queue_row(member) for member in members if member.state.active])
        self.says("sacct", [row for member in members for row in accounting_rows(member)])

    def settle(self, members: Sequence[Member]) -> None:
        """Make the run directories."""
        for member in members:
            for path, content in run_files(member).items():
                target = self.root / "runs" / member.run_id / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(content if isinstance(content, str) else json.dumps(content))

    def knows(self, members: Sequence[Member]) -> None:
        """Let these runs be known everywhere: on the cluster, to its tools and to the ledger."""
        self.settle(members)
        self.remember(members)
        self.answers(members)

    def resume(self, member: Member, job_id: str) -> None:
        """Let another laptop have resumed a run that failed: its second job has started."""
        ended = replace(member, state=JobState.FAILED)
        start = run_files(ended)["attempts/0/start.json"]
        again = {"attempt": 1, "job_id": job_id, "submission": 1, "started": int(time.time()) - 10}
        request = {"schema": 1, "number": 1, "kind": "resume", "options": []}
        self.settle([ended])
        for path, text in {
            "submissions/1/request.json": json.dumps(request),
            "submissions/1/asked": "1767250000\n",
            "submissions/1/answer": f"{job_id}\n",
            "submissions/1/status": "0\n",
            "attempts/1/start.json": json.dumps(start | again),
        }.items():
            target = self.root / "runs" / member.run_id / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)

    def beat(self, member: Member, **changes: Any) -> None:
        """A heartbeat of this moment, or of the `time` given; its file and the start are no younger."""
        folder = self.root / "runs" / member.run_id
        (folder / "heartbeat.json").write_text(json.dumps(heartbeat(member) | changes))
        if "time" in changes:
            for path in (folder / "heartbeat.json", *folder.glob("attempts/*/start.json")):
                os.utime(path, (changes["time"], changes["time"]))

    def remember(self, members: Sequence[Member], *, asked: bool = True) -> None:
        """Put the runs into the ledger, those that have ended as settled if they were `asked` about."""
        with self.ledger() as ledger:
            ledger.add_all(self.entry(member, asked=asked) for member in members)

    def ledger(self) -> Ledger:
        """The project's."""
        return Ledger(self.project / ".clusterkit" / "ledger.sqlite3")

    def entry(self, member: Member, *, asked: bool = True) -> LedgerRun:
        """A run as the ledger knows it."""
        run = LedgerRun(
            run_id=member.run_id,
            cluster="far",
            name="a40-2m",
            profile="a40-2m",
            recipe="sac",
            seed=member.number,
            job_id="" if member.state is JobState.DEFERRED else member.job_id,
            submitted="2026-01-01T00:00:00Z",
            run_dir=f"{self.root}/runs/{member.run_id}",
            total_steps=TOTAL,
            state=member.state.value if asked else "PENDING",
            group=member.group,
        )
        ended = RunState(member.state, final=True, progress=1.0, job_id=member.job_id, attempt=0, updated=1.0)
        return replace(run, last=to_text(ended)) if asked and not member.state.active else run

    def command(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start a clusterkit command with no terminal and nothing of this machine's user around it."""
        return subprocess.Popen(
            [sys.executable, "-m", "clusterkit", *words],
            cwd=self.project,
            env=self._environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a clusterkit command to its end; the exit code must be `code`."""
        run = forked.cold if self._cold else forked.run
        done = run(words, folder=self.project, env=self._environment(variables))
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "COLUMNS": "160"}
        environment = forked.of_python() | own | state() | variables
        if self._cold:  # Python keeps what it compiles, as it does for a person
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            environment["PYTHONPYCACHEPREFIX"] = str(self.folder / "bytecode")
        return environment

    def status(self, *words: str) -> dict[str, Any]:
        """`clusterkit status --json`."""
        return dict(json.loads(self.types("status", "--json", *words).stdout))

    def calls(self) -> Counter[str]:
        """How often each tool was called."""
        path = self.folder / "calls"
        return (
            Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()
        )

    def round_trips(self) -> int:
        """How many commands the sshd has started."""
        return len(re.findall(r"^Starting session: command", self.server.log(), re.MULTILINE))


def by_id(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The runs of `status --json`."""
    return {run["run_id"]: run for run in document["runs"]}


def states(document: Mapping[str, Any]) -> list[str]:
    """Their states, in the order in which they are told."""
    return [run["state"] for run in document["runs"]]


def queue_row(member: Member) -> str:
    """A line of squeue."""
    running = member.state is JobState.RUNNING
    start = datetime.fromtimestamp(time.time() + (-3600 if running else 7200), UTC)
    fields = [
        member.job_id,
        member.job_id,
        member.state.value,
        "None" if running else "Priority",
        "gpu",
        "node1" if running else "",
        "1:00:00" if running else "0:00",
        "1-00:00:00",
        f"{start:%Y-%m-%dT%H:%M:%S}",
        "N/A",
        member.group or member.run_id,
    ]
    return "|".join(fields)


def accounting_rows(member: Member) -> list[str]:
    """The lines of sacct: the job's, and that of its batch step once it has started."""
    start = "Unknown" if member.state is JobState.PENDING else "2026-01-01T00:00:10"
    end = "Unknown" if member.state.active else "2026-01-01T05:00:00"
    code = "1:0" if member.state is JobState.FAILED else "0:0"
    rest = f"{member.state}|{code}|{start}|{end}|3600"
    job = f"{member.job_id}|{rest}|1440|gpu|node1|{member.group or member.run_id}"
    batch = f"{member.job_id}.batch|{rest}|||node1|batch"
    return [job] if start == "Unknown" else [job, batch]


def heartbeat(member: Member) -> dict[str, Any]:
    """As the trainer writes it."""
    gpu = {"name": "A40", "utilization": 0.61, "utilization_max": 0.97, "memory_used_bytes": 2**33}
    return {
        "schema": 1,
        "time": time.time(),
        "attempt": 0,
        "step": member.step,
        "total_steps": TOTAL,
        "steps_per_second": 400.0,
        "updates": member.step // 16,
        "phase": "train",
        "success": 0.42,
        "return": 1234.5,
        "checkpoint": "checkpoints/step-000000480000",
        "cpu_share": 0.8,
        "rss_bytes": 2**32,
        "gpu": gpu,
    }


def run_files(member: Member) -> Mapping[str, Any]:
    """What lies in a run directory, by path."""
    group = {"id": member.group, "index": member.number, "size": 3} if member.group else None
    files: dict[str, Any] = {
        "run.json": json.dumps(
            {
                "schema": 1,
                "run_id": member.run_id,
                "name": "a40-2m",
                "created": "2026-01-01T00:00:00Z",
                "cluster": "far",
                "profile": {"name": "a40-2m"},
                "recipe": {"name": "sac"},
                "snapshot": {"id": "0", "diff": 'a "quoted"\nline: ' * 100},
                "seed": member.number,
                "total_steps": TOTAL,
                "project": "journey",
                "group": group,
                "time_limit_seconds": 86400,
                "image": {"digest": "0" * 64, "path": "/x.sif", "bytes": 1},
                "versions": {"clusterkit": "0.1.0"},
                "wandb": {"run_id": member.run_id, "project": "demo", "entity": None, "mode": "offline"},
            },
            indent=2,
        ),
        "submissions/0/request.json": {
            "schema": 1,
            "number": 0,
            "kind": "first",
            "options": ["--time=24:00:00"],
            "fed": member.state is JobState.DEFERRED,
        },
    }
    if member.state is JobState.DEFERRED:
        return files
    files |= {
        "submissions/0/asked": "1767225600\n",
        "submissions/0/answer": f"{member.job_id}\n",
        "submissions/0/status": "0\n",
    }
    if member.state is not JobState.PENDING:
        files["attempts/0/start.json"] = {
            "attempt": 0,
            "job_id": member.job_id,
            "node": "node1",
            "started": int(time.time()) - 3600,
            "restart_count": 0,
            "submission": 0,
        }
        files["heartbeat.json"] = heartbeat(member)
    if not member.state.active:
        completed = member.state is JobState.COMPLETED
        why = "completed" if completed else "failed"
        files["attempts/0/exit.json"] = {
            "code": int(not completed),
            "signal": None,
            "why": why,
            "ended": 1767243600,
        }
    return files
