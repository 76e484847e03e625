"""One submission, one job, whenever the laptop dies; arguments to the letter through sbatch and Apptainer."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clusterkit.backends.slurm.backend import SlurmBackend
from clusterkit.probes import script
from tests.allowing import state
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.killing import kills
from tests.sampling import SEED
from tests.waiting import until

WRITES = """for word; do printf '%s\\0' "$word"; done >"$CLUSTERKIT_RUN_DIR/argv\""""
PROFILE = f"""
[profiles.words]
gpu = "a40"
time = "5m"
program = ["sh", "-c", {json.dumps(WRITES)}, "sh"]
"""
STRIDE = 8
"""Calls between two kills. A submit makes 45; calls 3 to 14 come after its ledger row and before its job."""
ALPHABET = "aZ0 \t\n'\"\\$`!*?[]{}()<>|&;#%~-=é漢🤖\u0301\u202e"
PATIENCE = 300.0


@pytest.fixture(scope="module")
def ready(user: User) -> User:
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(PROFILE)
    user.types("deploy")
    return user


def job_names(user: User) -> list[str]:
    """Of every job of this user that accounting or the queue knows, a line a job."""
    booked = user.cluster.run(
        "login", ["sacct", "-nPX", "-S", "now-1hour", "-o", "JobID,JobName"], user="alice"
    )
    queued = user.cluster.run("login", ["squeue", "-h", "-t", "all", "-o", "%i|%j"], user="alice")
    return [line.split("|")[1] for line in {*booked.stdout.split("\n"), *queued.stdout.split("\n")} if line]


def found(user: User, run_id: str) -> tuple[tuple[str, ...], bool]:
    """What the cluster says of jobs of that name."""
    slurm = SlurmBackend()
    probe = slurm.find(run_id, "/no/job.sh", "2026-01-01")
    seen = probe.read(user.cluster.run("login", ["sh", "-c", script([probe])], user="alice").stdout)
    return seen.ids, seen.certain


IMPATIENT = "from clusterkit.backends import submission; submission.PATIENCE_SECONDS = 0.0"
"""What a `status` imports first that does not wait for what may still be on its way to sbatch."""


def settled(user: User) -> dict[str, dict[str, Any]]:
    """All runs, once no submission is on its way and all jobs have ended."""
    busy = ["pgrep", "-u", user.cluster.user, "-x", "sh|bash|dash|sbatch|sleep"]
    until(lambda: not user.cluster.run("login", busy, check=False).stdout and not user.active())
    (user.folder.parent / "sitecustomize.py").write_text(IMPATIENT)
    runs: dict[str, dict[str, Any]] = {}

    def all_have_ended() -> bool:
        status = user.starts("status", "--all", "--json", PYTHONPATH=str(user.folder.parent))
        runs.update((run["run_id"], run) for run in json.loads(status.communicate()[0])["runs"])
        return {run["state"] for run in runs.values()} <= {"COMPLETED", "NOT_SUBMITTED"}

    until(all_have_ended)
    return runs


@pytest.mark.parametrize("fineness", [1, pytest.param(6, marks=pytest.mark.exhaustive)])
def test_killed_again_and_again(ready: User, fineness: int) -> None:
    """Ever later, from a point that is drawn on: all points are tried in tests/commands."""
    user, stride = ready, STRIDE // fineness
    points = f"{random.Random(SEED).randint(1, stride)}:{stride}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(user.folder.parent)} | state()
    words = ("submit", "--profile", "words")
    killed = kills(points, *words, folder=user.folder, environment=environment)
    assert killed >= 3
    runs = settled(user)
    names = [name for name in job_names(user) if name.startswith("words-")]
    accepted = {run_id for run_id, run in runs.items() if run["state"] == "COMPLETED"}
    assert sorted(names) == sorted(accepted), "one job a run, and no job that is nobody's"
    assert {path.name for path in (user.root / "runs").iterdir()} <= set(runs)
    assert len(accepted) < len(runs), "no kill came before the job"
    for run_id in runs:
        ids = (runs[run_id]["job_id"],) if run_id in accepted else ()
        assert found(user, run_id) == (ids, True)
    print(f"{killed} kills: {len(accepted)} runs have one job, {len(runs) - len(accepted)} none")


def test_arguments_to_the_letter(ready: User) -> None:
    draw = random.Random(20)
    argvs = [["".join(draw.choices(ALPHABET, k=draw.randrange(12))) for _ in range(40)] for _ in range(3)]
    runs = {ready.submits("--profile", "words", "--", *argv): argv for argv in argvs}
    for run_id, argv in runs.items():
        written = ready.root / "runs" / run_id / "argv"
        deadline = time.monotonic() + PATIENCE
        while not written.exists() or written.read_text().count("\0") < len(argv):
            assert time.monotonic() < deadline, ready.types("logs", run_id)
            time.sleep(0.2)
        assert written.read_bytes().decode().split("\0")[:-1] == argv


KILLS = int(os.environ.get("CLUSTERKIT_TEST_KILLS", "6"))
"""So many submits; CONTRIBUTING.md asks for a hundred after a change of the hand-over."""
AT_ONCE = 4
SLOW = """#!/bin/sh
byte() { od -An -N1 -tu1 /dev/urandom; }
sleep $((3 + $(byte) % 13))
/usr/bin/sbatch "$@"
status=$?
sleep $(($(byte) % 4))
exit $status
"""
KILLED = """
[profiles.tiny]
cpus = 1
memory = "50M"
time = "5m"
program = ["sh", "-c", "echo $CLUSTERKIT_RUN_ID >>/share/alice/{root}-started"]
"""


@contextmanager
def slow_sbatch(cluster: Cluster) -> Iterator[None]:
    """Let the login node's sbatch take 3 to 15 s before it asks, and up to 3 s after."""
    tool = "/usr/local/bin/sbatch"
    cluster.run("login", ["sh", "-c", f'printf %s "$1" >{tool} && chmod 755 {tool}', "sh", SLOW])
    try:
        yield
    finally:
        cluster.run("login", ["rm", "-f", tool])


@pytest.mark.slow
@pytest.mark.timeout(60 * KILLS + 600)
def test_killed_at_random_while_sbatch_is_slow(cluster: Cluster, tmp_path: Path) -> None:
    """Several at a time, with `status` running meanwhile: each run has one job or none."""
    user = User.bare(tmp_path, cluster, KILLED)
    dice = random.Random(SEED)
    plans = [
        (dice.choice([signal.SIGKILL] * 7 + [signal.SIGTERM, signal.SIGHUP, None]), dice.uniform(1, 16))
        for _ in range(KILLS)
    ]
    said: list[str] = []
    over = threading.Event()

    def submit(plan: tuple[signal.Signals | None, float]) -> int:
        command = user.forks("submit", "--name", "killed")
        number, seconds = plan
        try:
            text, _ = command.communicate(timeout=None if number is None else seconds)
        except subprocess.TimeoutExpired:
            assert number is not None
            command.send_signal(number)
            text, _ = command.communicate(timeout=PATIENCE)
        said.append(text)
        return command.wait()

    def look() -> int:
        looks = 0
        while not over.wait(3):
            done = user.tries("status", "--all", "--json")
            said.append(f"{done.stderr}{'' if done.returncode == 0 else done.returncode}")
            looks += 1
        return looks

    user.types("status")  # starts the process that all others are forked from
    with slow_sbatch(cluster), ThreadPoolExecutor(AT_ONCE + 1) as pool:
        looking = pool.submit(look)
        try:
            codes = list(pool.map(submit, plans))
        finally:
            over.set()
    runs = settled(user)
    jobs = Counter(name for name in job_names(user) if name.startswith("killed-"))
    started = Counter(Path(f"{user.root}-started").read_text().split())
    accepted = {run_id for run_id, run in runs.items() if run["state"] == "COMPLETED"}
    print(
        f"{KILLS} submits, {sum(code < 0 or code > 128 for code in codes)} killed, {looking.result()} looks: "
        f"{len(accepted)} runs have one job, {len(runs) - len(accepted)} none, "
        f"{KILLS - len(runs)} ended before there was a run"
    )
    assert [text for text in said if "Traceback" in text] == []
    assert max(jobs.values(), default=1) == max(started.values(), default=1) == 1, "a run with two jobs"
    assert set(jobs) == set(started) == accepted, "a job that is nobody's, or a run without its job"
    assert {path.name for path in (user.root / "runs").iterdir()} <= set(runs)
