"""Secrets on a real cluster: the program has the token, and no search for it finds it anywhere."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tests.cluster.laptop import User
from tests.waiting import until

TOKEN = "hf_Zq7nothinglikeit0451"
NAME = "HF_TOKEN"
SETTINGS = """
[profiles.holder]
gpu = "a40"
cpus = 1
memory = "500M"
time = "30m"
program = ["python", "hold.py"]

[profiles.holder-a100]
extends = "holder"
gpu = "a100"

[secrets]
names = ["HF_TOKEN"]
"""
PROGRAM = """
import hashlib, os, pathlib, signal, subprocess, sys, time
token = os.environ["HF_TOKEN"]
print("got", token, flush=True)
print("seed", os.environ["CLUSTERKIT_SEED"], flush=True)
print("as", token, file=sys.stderr, flush=True)
run = pathlib.Path(os.environ["CLUSTERKIT_RUN_DIR"])
(run / ("proof-" + os.environ["CLUSTERKIT_ATTEMPT"])).write_text(hashlib.sha256(token.encode()).hexdigest())
while "hold" in sys.argv and not (run / "end").exists():
    time.sleep(0.1)
"""
PROOF = hashlib.sha256(TOKEN.encode()).hexdigest()


@pytest.fixture(scope="module")
def holder(user: User) -> User:
    with (user.folder / "clusterkit.toml").open("a") as file:
        file.write(SETTINGS)
    (user.folder / "hold.py").write_text(PROGRAM)
    user.types("deploy")
    return user


def submits(user: User, *words: str) -> str:
    return user.types("submit", "--profile", "holder", *words, HF_TOKEN=TOKEN).strip()


def proof(user: User, run_id: str, attempt: int = 0) -> bool:
    file = user.root / "runs" / run_id / f"proof-{attempt}"
    return file.exists() and file.read_text() == PROOF


def folders(user: User) -> list[Path]:
    return list((user.root / "secrets").glob("*"))


def job_of(user: User, run_id: str) -> str:
    return str(user.status(run_id)[run_id]["job_id"])


def traces(user: User) -> list[str]:
    """Where the token can be found: on both shared file systems, at home, in Slurm, in its daemons' files."""
    cluster = user.cluster
    here = [user.folder, cluster.share, cluster.home.parent]
    found = subprocess.run(
        ["grep", "-rlFs", "--exclude-dir=images", "-e", TOKEN, *here], capture_output=True, text=True
    ).stdout.splitlines()
    for node, argv in (
        ("ctl", ["scontrol", "-dd", "show", "job"]),
        ("ctl", ["sacct", "-a", "-P", "-S", "now-1day", "--format=ALL"]),
        ("ctl", ["grep", "-rlFs", "-e", TOKEN, "/var/spool", "/var/log", "/var/lib"]),
        ("a40n1", ["grep", "-rlFs", "-e", TOKEN, "/var/spool", "/var/log", "/tmp", "/dev/shm"]),
    ):
        said = cluster.run(node, argv, check=False).stdout
        if TOKEN in said or (argv[0] == "grep" and said):
            found.append(f"{node}: {argv}: {said[:500]}")
    return found


def seen_by(user: User, other: str, node: str = "a40n1") -> str:
    """What another user of a node can read about all processes there."""
    look = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'"
    return user.cluster.run(node, ["sh", "-c", look], user=other, check=False).stdout


def test_nothing_shows_it_before_during_and_after_the_run(holder: User) -> None:
    blocking = holder.cluster.run(
        "login",
        ["sbatch", "--parsable", "--chdir=/", "-o/dev/null", "-pgpu-a40", "--gres=gpu:a40:4", "--mem=50M",
         "--wrap=sleep 600"],
        user="bob",
    ).stdout.strip()  # fmt: skip
    run_id = submits(holder, "--", "hold")
    assert holder.status(run_id)[run_id]["state"] == "PENDING"
    assert len(folders(holder)) == 1
    assert traces(holder) == []
    holder.cluster.run("login", ["scancel", blocking], user="bob")
    until(lambda: proof(holder, run_id))
    assert traces(holder) == []
    assert "hold.py" in seen_by(holder, "bob")
    assert TOKEN not in seen_by(holder, "bob")
    assert TOKEN not in "".join(holder.cluster.run("a40n1", ["sh", "-c", "cat /proc/[0-9]*/cmdline"]).stdout)
    assert TOKEN in holder.cluster.run("a40n1", ["sh", "-c", "cat /proc/[0-9]*/environ"]).stdout
    assert holder.types("ssh", run_id, "--", "printf %s $HF_TOKEN") == TOKEN
    (holder.root / "runs" / run_id / "end").touch()
    assert holder.ended(run_id)[run_id]["state"] == "COMPLETED"
    assert folders(holder) == []
    assert "got ***\n" in holder.types("logs", run_id)
    holder.types("sync-results", "--no-wandb")
    holder.types("export", run_id, "--out", "archive.tar.gz")
    assert traces(holder) == []


def test_requeued_job_has_it_again(holder: User) -> None:
    run_id = submits(holder, "--", "hold")
    until(lambda: proof(holder, run_id))
    holder.cluster.run("ctl", ["scontrol", "requeue", job_of(holder, run_id)])
    until(lambda: (holder.root / "runs" / run_id / "attempts" / "0" / "exit.json").exists())
    assert len(folders(holder)) == 1
    until(lambda: proof(holder, run_id, 1))  # seconds: until its first start's credential has expired
    holder.types("cancel", run_id)
    holder.ended(run_id)
    assert folders(holder) == []


def test_cancel_removes_it_from_a_run_that_never_started(holder: User) -> None:
    run_id = holder.types("submit", "--profile", "holder", "--sbatch", "--hold", HF_TOKEN=TOKEN).strip()
    assert len(folders(holder)) == 1
    holder.types("cancel", run_id)
    assert folders(holder) == []


def test_refused_submission_leaves_none(holder: User) -> None:
    done = holder.tries("submit", "--profile", "holder", "--sbatch", "--partition=nonesuch", HF_TOKEN=TOKEN)
    assert done.returncode != 0
    assert "nvalid" in done.stderr
    assert folders(holder) == []


def test_each_run_of_an_array_and_of_a_first_pair_has_it(holder: User) -> None:
    group = submits(holder, "--seeds", "1..3")
    pair = submits(holder, "--first", "gpu:a40,a100")
    ids = [*holder.status(group), pair]
    assert len(ids) == 4
    holder.ended(*ids)
    until(lambda: not {pair, group} & holder.active())
    assert all(proof(holder, run_id) for run_id in ids)
    assert folders(holder) == []
    assert traces(holder) == []
