"""Runs of this machine whose processes are killed: `status`, `why`, `resume` and `cancel` see what lives."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.backends.local.processes import family, is_living, living_pid, send, start_token
from tests import forked
from tests.commands.conftest import Project
from tests.waiting import until

PROGRAM = """
import json, os, pathlib, signal, subprocess, sys, time
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
with open(run / "pids", "a") as file:
    file.write(f"{os.getpid()}\\n")
for pid in map(int, (run / "pids").read_text().split()):
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except OSError:
        continue
    if pid != os.getpid() and state not in "ZX":
        (run / "double").touch()
subprocess.Popen(["sleep", "1000"], start_new_session=True)
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: None)
(run / f"ready-{os.environ['CLUSTERKIT_ATTEMPT']}").touch()
while True:
    time.sleep(0.1)
"""
ENDED = {"CANCELLED", "FAILED", "PREEMPTED"}


@pytest.fixture
def killed(project: Project) -> Iterator[Project]:
    """A project whose program notes when it is not alone in its run directory; nothing of it stays."""
    (project.folder / "train.py").write_text(PROGRAM)
    yield project
    send(mine(project.folder), signal.SIGKILL)


def mine(folder: Path) -> set[int]:
    """All living processes of the project's runs, whatever their parents were."""
    mark, here, pids = os.fsencode(folder / ".clusterkit"), os.getpid(), set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != here:
            try:
                said = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if mark in said and start_token(int(entry.name)):
                pids.add(int(entry.name))
    return pids


def kill(*pids: int) -> None:
    send(pids, signal.SIGKILL)
    until(lambda: not any(map(start_token, pids)))


def unnoticed(identifier: str) -> None:
    """Kill the supervisor and what would end the job after it."""
    kill(*(pid for pid in family(identifier) if name(pid) == "keeper"), supervisor(identifier))


def supervisor(identifier: str) -> int:
    pid = living_pid(identifier)
    assert pid is not None
    return pid


@pytest.mark.slow
def test_a_run_ends_with_its_supervisor_and_can_be_resumed(killed: Project) -> None:
    run_id = killed.submit()
    run_dir = killed.run_dir(run_id)
    killed.until((run_dir / "ready-0").exists)
    identifier = killed.row(run_id)["job_id"]
    kill(supervisor(identifier))
    killed.until(lambda: not is_living(identifier))
    ended = killed.row(run_id)
    assert (ended["state"], ended["why"]) == ("FAILED", "SIGTERM ended the program")
    assert "its supervisor was killed" in killed.run("why", run_id).stdout
    killed.run("resume", run_id)
    killed.until((run_dir / "ready-1").exists)
    assert not (run_dir / "double").exists()
    killed.run("cancel", run_id)
    assert mine(killed.folder) == set()
    assert killed.row(run_id)["state"] == "CANCELLED"


@pytest.mark.slow
def test_a_program_that_outlived_its_supervisor_is_shown_not_resumed_and_cancelled(killed: Project) -> None:
    run_id = killed.submit()
    run_dir = killed.run_dir(run_id)
    killed.until((run_dir / "ready-0").exists)
    unnoticed(killed.row(run_id)["job_id"])
    shown = killed.row(run_id)
    assert shown["state"] == "RUNNING"
    assert "its supervisor was killed" in shown["why"]
    assert "its supervisor was killed, and what it has started" in killed.run("why", run_id).stdout
    assert "cannot be resumed while it may still run" in killed.run("resume", run_id, code=8).stderr
    killed.run("cancel", run_id)
    assert mine(killed.folder) == set()
    assert killed.row(run_id)["state"] == "CANCELLED"
    killed.run("resume", run_id)
    killed.until((run_dir / "ready-1").exists)
    assert not (run_dir / "double").exists()


@pytest.mark.slow
def test_a_shell_in_a_run_is_no_part_of_it(killed: Project) -> None:
    run_id = killed.submit()
    killed.until((killed.run_dir(run_id) / "ready-0").exists)
    said = killed.run("shell", run_id, "--", "sh", "-c", "echo ${CLUSTERKIT_JOB_ID-none} $CLUSTERKIT_RUN_ID")
    assert said.stdout.split() == ["none", run_id]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_whatever_is_killed_there_is_one_program_and_cancel_ends_it(killed: Project, seed: int) -> None:
    for line in attack(killed, random.Random(seed), kills=3):
        print(line)


def attack(project: Project, chance: random.Random, kills: int) -> Iterator[str]:
    """Kill processes of a run at random moments, with status, resume or cancel between; yields what came."""
    run_id = project.submit("--", "stubborn" if chance.random() < 0.3 else "soft")
    run_dir = project.run_dir(run_id)
    for _ in range(kills):
        time.sleep(chance.uniform(0, 1.5))
        tree = sorted(mine(project.folder))
        victims = chance.sample(tree, chance.randint(1, min(3, len(tree)))) if tree else []
        names = ", ".join(name(pid) for pid in victims)
        kill(*victims)
        shown = project.row(run_id)["state"]
        action = chance.choice(["resume", "cancel", "both"])
        came = []
        if action != "cancel":
            came.append(f"resume {command(project, 'resume', run_id)}")
        if action != "resume":
            came.append(f"cancel {command(project, 'cancel', run_id)}")
            assert mine(project.folder) == set(), f"{names}: something lives after cancel"
            ended = project.row(run_id)
            assert ended["state"] in ENDED, ended
            assert ended["why"]
            assert project.run("why", run_id).stdout
            came.append(ended["state"])
            project.run("resume", run_id)
        assert not (run_dir / "double").exists(), f"{names}: two programs"
        yield f"| {names or 'none there'} | {shown} | {'; '.join(came)} |"
    project.run("cancel", run_id)
    assert mine(project.folder) == set()
    assert not (run_dir / "double").exists()


def command(project: Project, *arguments: str) -> str:
    """What came of a command that may be refused."""
    done = forked.run(arguments, folder=project.folder, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode in (0, 8), done.stderr
    return "done" if done.returncode == 0 else done.stderr.splitlines()[0].rpartition(": ")[2]


def name(pid: int) -> str:
    """A process of a job, in a word."""
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return "gone"
    parts = {
        "local.supervisor": "supervisor",
        "local.stop": "keeper",
        "job.sh": "job.sh",
        "launch.py": "launcher",
        "train.py": "program",
        "sleep 1000": "daemon",
        "tee": "tee",
    }
    return next((part for text, part in parts.items() if text in line), line.split(" ")[0] or "gone")
