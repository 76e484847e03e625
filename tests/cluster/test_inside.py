"""logs, shell, top and cancel on a real cluster: across requeues, dropped links and killed clients."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.backends.slurm.backend import SlurmBackend
from tests.allowing import state
from tests.cluster import small_image
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.doubles.person import type_at_terminal
from tests.waiting import until

PROFILE = """
[profiles.talk]
gpu = "a40"
gpus = 2
cpus = 2
memory = "2G"
time = "30m"
program = ["python", "talk.py"]
"""

TALK = """
import json, os, signal, sys, time
run, attempt, stop = os.environ["CLUSTERKIT_RUN_DIR"], os.environ["CLUSTERKIT_ATTEMPT"], []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
for line in range(10_000):
    print("attempt", attempt, "line", line, flush=True)
    if line % 10 == 0: print("attempt", attempt, "trouble", line, file=sys.stderr, flush=True)
    beat = {"time": time.time(), "step": line, "total_steps": 10_000, "steps_per_second": 5.0}
    with open(run + "/.beat", "w") as file: json.dump(beat, file)
    os.replace(run + "/.beat", run + "/heartbeat.json")
    time.sleep(0.2)
    if os.path.exists(f"{run}/done-{attempt}"): break
    if stop: sys.exit(85)
"""

NVIDIA_SMI = """#!/bin/sh
test "$1 $2" = "-i 0,1" || exit 6
echo "0, NVIDIA A40, 87, 31234, 46068, 271.33, 64"
echo "1, NVIDIA A40, [N/A], 512, 46068, [Not Supported], 31"
"""
PATIENCE_SECONDS = 240.0


@pytest.fixture(scope="module")
def talker(user: User) -> Iterator[User]:
    """With a program that talks, deployed, and a tool that tells of GPUs on one node meanwhile."""
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(PROFILE)
    (user.folder / "talk.py").write_text(TALK)
    user.types("deploy")
    install = 'printf "%s" "$1" >/usr/local/bin/nvidia-smi && chmod 755 /usr/local/bin/nvidia-smi'
    user.cluster.run("a40n1", ["sh", "-c", install, "sh", NVIDIA_SMI])
    yield user
    user.cluster.run("a40n1", ["rm", "-f", "/usr/local/bin/nvidia-smi"])  # apptainer --nv would show it


@pytest.fixture(scope="module")
def running(talker: User) -> Iterator[str]:
    """A run that talks until it is cancelled."""
    run_id = talker.submits("--profile", "talk")
    begins(talker, run_id)
    yield run_id
    talker.types("cancel", run_id)


def folder(user: User, run_id: str) -> Path:
    return user.root / "runs" / run_id


def begins(user: User, run_id: str, attempt: int = 0) -> None:
    """Wait until an attempt has said something."""
    log = folder(user, run_id) / f"attempts/{attempt}/log"
    until(lambda: log.exists() and f"attempt {attempt} line" in log.read_text())


def steps(cluster: Cluster) -> list[str]:
    """The job steps of the user, but batch scripts."""
    listed = cluster.run("login", ["squeue", "-h", "-s", "-o", "%i"], user=cluster.user).stdout.split()
    return [step for step in listed if not step.endswith(".batch")]


def test_logs_follow_through_a_requeue_and_a_dropped_link(talker: User) -> None:
    run_id = talker.submits("--profile", "talk")
    follower = talker.starts("logs", "-f", "--lines", "100000", run_id)
    begins(talker, run_id)
    until(lambda: follows(talker.cluster))
    before = talker.cluster.logins()
    talker.cluster.run("login", ["pkill", "-KILL", "-u", talker.cluster.user, "sshd"])
    until(lambda: talker.cluster.logins() > before)
    job = talker.status(run_id)[run_id]["job_id"]
    talker.cluster.run("login", ["scontrol", "requeue", job], user=talker.cluster.user)
    begins(talker, run_id, 1)
    (folder(talker, run_id) / "done-1").touch()
    shown, said = follower.communicate(timeout=PATIENCE_SECONDS)
    assert follower.returncode == 0, said
    logs = [(folder(talker, run_id) / f"attempts/{number}/log").read_text() for number in (0, 1)]
    assert shown == "".join(logs)
    assert "logged in again" in said
    assert "attempt 0 on a40n1 ended: it checkpointed after SIGTERM; attempt 1 on a40n1 continues" in said
    errors = talker.types("logs", "--all", "--stderr", run_id).splitlines()
    assert {line for line in errors if "trouble" in line} == {
        line for text in logs for line in text.splitlines() if "trouble" in line
    }
    assert not [line for line in errors if " line " in line]


def follows(cluster: Cluster) -> bool:
    """Whether a log is being followed: a link that drops before that ends the command."""
    return cluster.run("login", ["pgrep", "-u", cluster.user, "-x", "tail"], check=False).returncode == 0


def test_a_waiting_run_says_why(talker: User) -> None:
    held = talker.submits("--profile", "talk", "--sbatch", "hold")
    refused = talker.tries("logs", held)
    assert refused.returncode == 8
    assert "has not started; it is PENDING: held by you" in refused.stderr
    entered = talker.tries("shell", held, "--", "true")
    assert entered.returncode == 8
    assert "is not running, it is PENDING: held by you" in entered.stderr
    assert talker.types("cancel", held) == f"{held}  cancelled\n"


def test_a_command_in_the_programs_place(talker: User, running: str) -> None:
    tell = "echo $CLUSTERKIT_RUN_ID $CUDA_VISIBLE_DEVICES; pwd; . /etc/os-release; echo $ID; "
    tell += "command -v python; exit 5"
    with talker.logging_in(times=1):
        done = talker.tries("shell", running, "--", "sh", "-c", tell)
    assert done.returncode == 5, done.stderr
    name, workdir, system, python = done.stdout.splitlines()
    assert name == f"{running} 0,1"
    assert workdir == f"{json.loads(talker.types('status', '--json', running))['runs'][0]['run_dir']}/work"
    assert (system, python) == (small_image.NAME, "/usr/bin/python")
    until(lambda: not steps(talker.cluster))


def test_a_person_in_the_container(talker: User, running: str) -> None:
    environment = {"PATH": os.environ["PATH"], "HOME": str(talker.folder.parent), "TERM": "xterm"}
    keys = iter(["echo $((6 * 7)) $SLURM_JOB_ID; tty", "stty size", "exit 3"])
    with talker.logging_in(times=1):
        done = type_at_terminal(
            ["shell", running],
            {f"({running}) work$": lambda: next(keys)},
            folder=talker.folder,
            environment=environment | state(),
        )
    assert done.returncode == 3, done.stdout
    job = talker.status(running)[running]["job_id"]
    assert f"42 {job}" in done.stdout
    assert "/dev/" in done.stdout
    until(lambda: not steps(talker.cluster))


def test_what_it_uses(talker: User, running: str) -> None:
    with talker.logging_in(times=1):
        usage = json.loads(talker.types("top", running, "--once", "--json"))
    assert usage["run_id"] == running
    assert usage["node"] == "a40n1"
    assert [(gpu["utilization"], gpu["power_watts"]) for gpu in usage["gpus"]] == [
        (0.87, 271.33),
        (None, None),
    ]
    assert usage["cpus"] == 2
    assert usage["memory_limit_bytes"] == 2 << 30
    assert 0 < usage["memory_bytes"] < 1 << 30
    (program,) = usage["processes"]
    assert program["command"].endswith("talk.py")
    assert usage["heartbeat"]["total_steps"] == 10_000
    shown = talker.types("top", running)
    assert "GPU 0" in shown
    assert "of 10k" in shown


@pytest.mark.parametrize("words", [("top", "--json"), ("shell", "RUN", "--", "sleep", "4831")])
def test_a_killed_client_leaves_no_step(talker: User, running: str, words: tuple[str, ...]) -> None:
    client = talker.forks(*(running if word == "RUN" else word for word in words))
    until(lambda: steps(talker.cluster))
    client.send_signal(signal.SIGKILL)
    client.communicate()
    until(lambda: not steps(talker.cluster))


def test_tasks_of_an_array_are_entered_and_cancelled_one_by_one(cluster: Cluster) -> None:
    def alice(*argv: str) -> str:
        return cluster.run("login", list(argv), user=cluster.user).stdout.strip()

    slurm = SlurmBackend()
    options = ["--parsable", "--array=0-1", "--output=/dev/null", "--wrap=sleep 300"]
    number = alice("sbatch", *options)
    listed = ["squeue", "-h", "-r", "-t", "R", "-j", number, "-o", "%i"]
    until(lambda: len(alice(*listed).split()) == 2)
    argv = SlurmBackend().inside_argv(f"{number}_1", ["sh", "-c", "echo $SLURM_JOB_ID"], terminal=True)
    own = cluster.run("login", ["script", "-qec", shlex.join(argv), "/dev/null"], user=cluster.user).stdout
    assert re.findall(r"\d+", own) == [alice("squeue", "-h", "-j", f"{number}_1", "-o", "%A")]
    alice(*slurm.cancel_argv([f"{number}_1"]))
    until(lambda: alice(*listed).split() == [f"{number}_0"])
    alice("scancel", number)
