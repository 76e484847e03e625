"""Every command at a terminal, where every text of project, runs and cluster tries to control it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests import forked
from tests.commands.conftest import SlurmSite
from tests.documented import commands
from tests.doubles.hostile_words import CONTROLS, EVERY, controls_in
from tests.doubles.person import type_at_terminal
from tests.doubles.slurm_site import EVERYONE, FAILED, RUNNING, WAITING
from tests.needs import needing

pytestmark = pytest.mark.slow  # real jobs or servers, half a second or more each

KEPT = {"run_id", "schema", "state", "kind", "created", "name", "cluster", "time", "why"}
"""Names of values that must stay, or the file is refused and nothing of it is shown."""

WORDS = "".join(sign for sign in EVERY if sign not in "\0\x0b\x0c\x85\u2028/")
"""Those that a line, an argument and a file's name can hold."""
RUN, DEAD, QUEUED = RUNNING.run_id, FAILED.run_id, WAITING.run_id
LINES: dict[str, list[list[str]]] = {
    "sync-results": [[], [DEAD]],  # first, as others look at what came home
    "build": [["image.sif"], ["--print"]],
    "completion": [["bash"]],
    "config": [[]],
    "curves": [[RUN, "--once"], [DEAD, "--once"]],
    "demo": [["--help"]],  # it runs what comes with it
    "deploy": [["--dry-run"]],
    "dev": [[]],
    "diff": [[RUN, DEAD]],
    "docs": [[], [WORDS]],
    "doctor": [[]],
    "evaluate": [[DEAD]],
    "export": [[DEAD, "-o", "out.tar.gz"]],
    "forward": [[RUN, "1234"]],
    "init": [["node"]],
    "login": [[]],
    "logout": [[]],
    "logs": [[RUN], [DEAD], [DEAD, "--stderr"], [DEAD, "--all"], [DEAD, "--json"]],
    "notify": [[]],
    "plan": [[]],
    "play": [[DEAD]],
    "profiles": [[]],
    "rehearse": [[]],
    "report": [[RUN, DEAD], [DEAD]],
    "rerun": [[DEAD]],
    "resume": [[DEAD]],
    "run": [[], ["python", f"{WORDS}.py"]],
    "search": [["evil", "--space", "lr=1,2"]],
    "shell": [["--help"]],  # a shell of one's own there, which may do all that a terminal can
    "skill": [[]],
    "ssh": [[RUN, "--", "true"]],
    "ssh-config": [[RUN]],
    "status": [[], [RUN], [DEAD], ["--all"]],
    "storage clean": [["--dry-run"]],
    "storage list": [[]],
    "storage prune": [["--dry-run"]],
    "submit": [["--dry-run"], ["--dry-run", "--name", "a", "--", WORDS], []],
    "top": [[RUN, "--once"]],
    "tune": [[]],
    "why": [[DEAD], [RUN], [QUEUED]],
    "cancel": [[QUEUED], [DEAD]],
}
"""Of each command some lines, whatever becomes of them: all that they show is looked at."""


def evil(value: Any, key: str = "") -> Any:
    """A document with every control behind each of its texts."""
    if isinstance(value, dict):
        return {name: evil(inner, name) for name, inner in value.items()} | {f"own/{EVERY}": 1.0}
    if isinstance(value, list):
        return [evil(inner, key) for inner in value]
    return value + EVERY if isinstance(value, str) and key not in KEPT else value


@pytest.fixture(scope="module")
@needing("sshd")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmSite]:
    with closing(SlurmSite(tmp_path_factory.mktemp("hostile") / "site")) as site:
        site.knows(EVERYONE)
        for file in (site.root / "runs").rglob("*.json"):
            file.write_text(json.dumps(evil(json.loads(file.read_text()))))
        for folder in (site.root / "runs").iterdir():
            log = "\n".join(
                (*CONTROLS, f"Error: out of memory {EVERY}", "Traceback (most recent call last):", "")
            )
            for attempt in folder.glob("attempts/*"):
                for name in ("log", "stderr", "program.log"):
                    (attempt / name).write_text(log)
            (folder / "slurm.log").write_text(log)
            (folder / f"name {WORDS[:100]}").write_text("x")
            rows = [evil({"kind": "train", "step": step, "loss": 1.0, "time": 1.0}) for step in range(3)]
            rows.append({"kind": "event", "step": 3, "message": EVERY, "time": 2.0})
            (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        for tool in ("squeue", "sacct"):
            answer = (site.folder / f"{tool}.out").read_text()
            for word in ("node1", "Priority", "gpu"):
                answer = answer.replace(word, word + WORDS)
            (site.folder / f"{tool}.out").write_text(answer)
        for tool in ("sbatch", "scontrol", "sinfo", "sacctmgr", "scancel", "srun", "apptainer"):
            said = site.folder / f"{tool}.said"
            said.write_text("\n".join((f"{tool}: error: {EVERY}", *CONTROLS)))
            site.tool(tool, f"cat {said}\ncat {said} >&2\nexit 1")
        for name in (".env.", "train.py", "notes"):
            (site.project / (name + WORDS[:100])).write_text("x")
        yield site


def test_every_command_is_among_them() -> None:
    assert set(LINES) == set(commands()) - {"storage"}


@pytest.mark.parametrize("name", LINES)
def test_no_command_lets_others_control_the_terminal(hostile: SlurmSite, name: str) -> None:
    environment = forked.of_python() | {
        "PATH": os.environ["PATH"],
        "HOME": str(hostile.folder),
        "TERM": "xterm-256color",
        "COLUMNS": "400",
    }
    for line in LINES[name]:
        words = [*name.split(), *line]
        shown = type_at_terminal(
            words,
            {": ": lambda: "n", "]:": lambda: "n"},
            folder=hostile.project,
            environment=environment,
            seconds=60,
        )
        assert not controls_in(shown.stdout), words
