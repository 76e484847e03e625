"""`clusterkit why` on a real Slurm: everything that can go wrong is made to, and the cause must be named.

All runs are submitted at the beginning and asked about as soon as each is where it should be. What the
trainer itself says when it fails needs no Slurm: tests/commands/test_why.py.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from clusterkit.runs.verdict import STALE_SECONDS
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import own_cluster
from tests.cluster.laptop import User
from tests.cluster.trouble import (
    make_trouble,
    queue,
    quick_submission,
    sbatch,
    slow_submission,
    spoil,
    troubled_user,
)
from tests.waiting import until

RECORD = os.environ.get("CLUSTERKIT_RECORD_WHY")
"""A folder for the clusters' answers, from which the tests of the rules are made."""
ACTIVE = ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING")
PATIENCE_SECONDS = 400
AT_LEAST = 23

BARE = ("--cluster", "bare", "--profile", "fault")


def option(*texts: str) -> list[str]:
    return [word for text in texts for word in ("--sbatch", text)]


@dataclass(frozen=True)
class Scene:
    """One thing that goes wrong."""

    cause: str
    words: tuple[str, ...]
    """What is typed after `submit`."""
    when: Callable[[str, str, float], bool] = lambda state, reason, silent: state not in ACTIVE
    """Whether it is time to ask: of the job's state and reason, and the seconds since its last heartbeat."""
    act: Callable[[User, str, str], None] | None = None
    """What is done to it once it runs or waits: of the user, the run id and the job id."""
    when_act: str = "RUNNING"


def waits(reason: str) -> Callable[[str, str, float], bool]:
    return lambda state, said, silent: state == "PENDING" and said.replace(" ", "_").startswith(reason)


def beats(state: str, said: str, silent: float) -> bool:
    return state == "RUNNING" and silent < 5


def falls_silent(state: str, said: str, silent: float) -> bool:
    """For longer than `status` has patience; a job that has not begun to beat is not silent."""
    return state == "RUNNING" and STALE_SECONDS + 5 < silent < float("inf")


def silence(person: User, run_id: str) -> float:
    """Seconds since the last heartbeat of a run on the cluster `bare`; infinite before the first."""
    beat = person.cluster.share / f"alice/bare/runs/{run_id}/heartbeat.json"
    return time.time() - beat.stat().st_mtime if beat.exists() else float("inf")


def preempt(user: User, run_id: str, job_id: str) -> None:
    sbatch(user.cluster, "-p", "gpu-a40", "--gres=gpu:a40:1", "--mem=60", "--wrap", "sleep 1", user="bob")


def as_root(*command: str) -> Callable[[User, str, str], None]:
    return lambda user, run_id, job_id: void(user.cluster.run("ctl", [*command, job_id]))


def void(value: object) -> None:
    del value


def end_of_time(user: User, run_id: str, job_id: str) -> None:
    """Slurm looks twice a minute whose time is over."""
    user.cluster.run("ctl", ["scontrol", "update", f"JobId={job_id}", "EndTime=now+1"])


def grow_old(user: User, run_id: str, job_id: str) -> None:
    """What the run has shown of life was long ago."""
    run = user.cluster.share / f"alice/bare/runs/{run_id}"
    until((run / "heartbeat.json").exists)
    then = int(time.time() - 2 * STALE_SECONDS)
    for name, field in (("attempts/0/start.json", "started"), ("heartbeat.json", "time")):
        (run / name).write_text(json.dumps(json.loads((run / name).read_text()) | {field: then}))
        os.utime(run / name, (then, then))


def cancel(user: User, run_id: str, job_id: str) -> None:
    user.types("cancel", run_id)


def scancel(user: User, run_id: str, job_id: str) -> None:
    user.cluster.run("login", ["scancel", job_id], user="alice")


def scenes(failed: str) -> dict[str, Scene]:
    """By name; those that take longest come first. `failed` is the id of a job that fails."""
    return {
        "time limit": Scene("time-limit", (*BARE, "--time", "1m", "--", "sleeps"), act=end_of_time),
        "hang": Scene("hangs", (*BARE, "--", "hangs"), falls_silent, act=grow_old),
        "node failure": Scene(
            "node-failed", (*BARE, *option("partition=gpu-a100", "no-requeue"), "--", "sleeps")
        ),
        "driver too old": Scene("driver-too-old", (*BARE, "--", "old_driver")),
        "wall limit above the partition's": Scene(
            "time-over-partition",
            (*BARE, *option("partition=short"), "--", "works"),
            waits("PartitionTimeLimit"),
        ),
        "QOS wall limit": Scene(
            "qos-limit", (*BARE, *option("qos=small"), "--", "works"), waits("QOSMaxWall")
        ),
        "QOS processors": Scene(
            "qos-limit",
            (*BARE, *option("qos=small", "cpus-per-task=4"), "--time", "3m", "--", "works"),
            waits("QOSMaxCpu"),
        ),
        "association limit": Scene(
            "association-limit",
            (*BARE, *option("account=narrow", "cpus-per-task=2"), "--", "works"),
            waits("AssocGrpCpu"),
        ),
        "account not allowed": Scene(
            "bad-account", (*BARE, *option("partition=members"), "--", "works"), waits("PartitionConfig")
        ),
        "dependency never satisfied": Scene(
            "dependency-failed",
            (*BARE, *option(f"dependency=afterok:{failed}"), "--", "works"),
            waits("DependencyNever"),
        ),
        "launch failed": Scene(
            "launch-failed", (*BARE, *option("partition=flaky"), "--", "works"), waits("launch_failed")
        ),
        "held by the user": Scene(
            "held-by-you", (*BARE, *option("hold"), "--", "works"), waits("JobHeldUser")
        ),
        "held by root": Scene(
            "held-by-admin",
            (*BARE, *option("begin=now+3hours"), "--", "works"),
            waits("JobHeldAdmin"),
            as_root("scontrol", "hold"),
            "PENDING",
        ),
        "waits for its time": Scene(
            "waiting", (*BARE, *option("begin=now+4hours"), "--", "works"), waits("BeginTime")
        ),
        "preempted": Scene(
            "preempted",
            (*BARE, *option("partition=scavenge", "gres=gpu:a40:4"), "--", "sleeps"),
            act=preempt,
        ),
        "cancelled with clusterkit": Scene("cancelled-by-you", (*BARE, "--", "sleeps"), act=cancel),
        "cancelled with scancel": Scene("cancelled-by-you", (*BARE, "--", "sleeps"), act=scancel),
        "cancelled by root": Scene("cancelled-by-other", (*BARE, "--", "sleeps"), act=as_root("scancel")),
        "out of memory": Scene("out-of-memory", (*BARE, "--", "eats")),
        "scratch full": Scene(
            "scratch-full", ("--cluster", "narrow-scratch", "--profile", "fault", "--", "fills_scratch")
        ),
        "home full": Scene("home-full", (*BARE, "--", "fills_home")),
        "wants the internet": Scene("no-internet", (*BARE, "--", "fetches")),
        "too many files": Scene("process-limit", (*BARE, "--", "opens_files")),
        "import error": Scene("import-error", (*BARE, "--", "imports")),
        "segmentation fault": Scene("killed-by-signal", (*BARE, "--", "crashes")),
        "missing bind": Scene("bind-missing", ("--cluster", "bound", "--profile", "fault", "--", "works")),
        "partition down": Scene(
            "partition-closed", (*BARE, *option("partition=resting"), "--", "works"), waits("PartitionDown")
        ),
        "no such program": Scene("program-missing", ("--cluster", "bare", "--profile", "misspelt")),
        "no such runtime": Scene(
            "runtime-missing", ("--cluster", "modular", "--profile", "fault", "--", "works")
        ),
        "no Python in the image": Scene(
            "image-without-python", ("--cluster", "tiny", "--profile", "fault", "--", "works")
        ),
        "running well": Scene("running", (*BARE, "--", "trains"), beats),
        "completed": Scene("completed", (*BARE, "--", "works")),
    }


IMAGES = {
    "missing image": ("missing", "image-missing", ()),
    "truncated image": ("torn", "image-damaged", ()),
    "flipped bytes, verified": ("flipped", "image-damaged", ("--verify-image",)),
    "flipped bytes": ("flipped", "image-damaged", ()),
}


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of its own: limits and a failing prolog are no company for other tests."""
    with own_cluster() as running:
        make_trouble(running)
        yield running


@pytest.fixture(scope="module")
def person(site: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    user = troubled_user(tmp_path_factory.mktemp("laptop"), site)
    with user.keeping_login("bare"):
        yield user


@pytest.fixture(scope="module")
def named(person: User) -> dict[str, dict[str, Any]]:
    """Every scene played: its name -> what `why --json` said, with what was expected as `expected`."""
    failed = sbatch(person.cluster, "--mem=60", "--wrap", "exit 1")
    table = scenes(failed)
    submitted = {}
    person.types("deploy", "--cluster", "tiny")
    for name, scene in table.items():
        submitted[name] = person.submits(*scene.words)
    wait_for_the_end(person, submitted["no Python in the image"])  # whose image is damaged next
    answers = spoiled_images(person)
    answers["bad sbatch option"] = interrupted(person)
    answers["code removed"] = cleaned(person)
    acted: set[str] = set()
    killed = False
    deadline = time.monotonic() + PATIENCE_SECONDS
    while missing := [name for name in table if name not in answers]:
        jobs = queue(person.cluster)
        for name in missing:
            run_id = submitted[name]
            job_id, state, reason = jobs.get(run_id, ("", "GONE", ""))
            scene = table[name]
            if scene.act and name not in acted and state == scene.when_act:
                acted.add(name)
                scene.act(person, run_id, job_id)
            elif scene.when(state, reason, silence(person, run_id)):
                answers[name] = ask(person, name, run_id, scene.cause)
        if not killed and "launch failed" in answers:
            killed = True
            # The prolog that failed has drained the node: new jobs wait for it.
            late = person.submits(*BARE, *option("partition=gpu-a100"), "--", "works")
            wait_for(person, late, "PENDING")
            answers["drained nodes"] = ask(person, "drained nodes", late, "nodes-drained")
            person.cluster.kill_node("a100n1")
        if time.monotonic() > deadline:
            print("still waiting for", {name: jobs.get(submitted[name]) for name in missing})
            break
        time.sleep(0.3)
    return answers


def spoiled_images(person: User) -> dict[str, dict[str, Any]]:
    """Runs that were submitted with a good image, which was damaged before they started."""
    held = {
        name: person.submits(
            "--cluster", "tiny", "--profile", "fault", *option("hold"), *words, "--", "works"
        )
        for name, (_, _, words) in IMAGES.items()
    }
    (image,) = (person.cluster.share / "alice/tiny/images").glob("*.sif")
    good = image.read_bytes()
    answers = {}
    for name, (how, cause, _) in IMAGES.items():
        spoil(image, how)
        release(person, held[name])
        answers[name] = ask(person, name, held[name], cause)
        image.write_bytes(good)
        os.chown(image, 2001, 2001)
    return answers


def cleaned(person: User) -> dict[str, Any]:
    """Somebody makes room on the cluster while the run waits."""
    run_id = person.submits("--cluster", "cleaned", "--profile", "fault", *option("hold"), "--", "works")
    shutil.rmtree(person.cluster.share / "alice/cleaned/snapshots")
    release(person, run_id)
    return ask(person, "code removed", run_id, "code-missing")


def release(person: User, run_id: str) -> None:
    """Let a held run go, and wait for its failure."""
    job_id = queue(person.cluster)[run_id][0]
    person.cluster.run("login", ["scontrol", "release", job_id], user="alice")
    wait_for(person, run_id, "FAILED")


def interrupted(person: User) -> dict[str, Any]:
    """A laptop that dies while the scheduler is asked, with an option that it then refuses.

    Whoever is still there is told at once, and nothing of the run is left.
    """
    runs = person.cluster.share / "alice/bare/runs"
    before = set(runs.iterdir())
    slow_submission(person.cluster)
    command = person.starts("submit", *BARE, *option("gres=gpu:h100:1"), "--", "works")
    (run,) = until(lambda: set(runs.iterdir()) - before)
    command.kill()
    command.communicate()
    until((run / "submissions/0/status").exists)
    quick_submission(person.cluster)
    return ask(person, "bad sbatch option", run.name, "submission-refused")


def wait_for(person: User, run_id: str, state: str) -> None:
    until(lambda: queue(person.cluster).get(run_id, ("", "GONE", ""))[1] == state)


def wait_for_the_end(person: User, run_id: str) -> None:
    until(lambda: (queue(person.cluster).get(run_id, ("", "GONE", "")))[1] not in ACTIVE)


def ask(person: User, name: str, run_id: str, expected: str) -> dict[str, Any]:
    if RECORD:
        record(person, name, run_id, expected)
    answer: dict[str, Any] = json.loads(person.types("why", "--json", run_id))
    return {**answer, "expected": expected, "name": name}


def record(person: User, name: str, run_id: str, cause: str) -> None:
    from clusterkit.commands.why import ask as asked
    from clusterkit.config.settings import load_settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.site import connected

    settings = load_settings(config=person.folder / "clusterkit.toml")
    with Ledger(person.folder / ".clusterkit" / "ledger.sqlite3") as ledger:
        run = ledger.find_one(run_id)
        cluster = settings.cluster(run.cluster)
        with connected(cluster) as transport:
            (text,) = asked(cluster, transport, ledger, [run])
    assert RECORD
    slug = re.sub(r"\W+", "-", name.replace("'", "").lower())
    Path(RECORD, f"{cause}--{slug}.txt").write_text(text)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_right_cause_is_named(named: dict[str, dict[str, Any]], request: pytest.FixtureRequest) -> None:
    right = [name for name, answer in named.items() if answer["cause"] == answer["expected"]]
    line = request.config.get_terminal_writer().line
    line()
    for name, answer in sorted(named.items()):
        mark = "   " if name in right else "NOT"
        line(f"{mark} {name:<34} {answer['cause']:<22} {answer['sentence'][:110]}")
    causes = {answer["expected"] for answer in named.values()}
    line(f"why: {len(right)} of {len(named)} provoked failures named, {len(causes)} causes")
    assert len(causes) >= 25
    assert len(right) >= AT_LEAST
    assert right == list(named)


@pytest.fixture(scope="module")
def without_accounting(person: User, named: dict[str, dict[str, Any]]) -> None:
    """From here on slurmdbd is dead."""
    person.cluster.run("ctl", ["pkill", "-x", "slurmdbd"])


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["out of memory", "time limit", "preempted", "node failure", "import error"])
def test_without_accounting_the_cause_is_still_named(
    person: User, named: dict[str, dict[str, Any]], without_accounting: None, name: str
) -> None:
    answer = json.loads(person.types("why", "--json", named[name]["run_id"]))
    assert answer["cause"] == named[name]["expected"], answer


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_a_controller_the_exit_record_tells(
    person: User, named: dict[str, dict[str, Any]], without_accounting: None
) -> None:
    person.cluster.kill_node("ctl")
    expected = {"import error": "import-error", "held by the user": "scheduler-silent"}
    with person.cluster.impatient():
        with ThreadPoolExecutor() as pool:
            asked = pool.map(lambda name: person.types("why", "--json", named[name]["run_id"]), expected)
        answers = [json.loads(answer) for answer in asked]
    assert [answer["cause"] for answer in answers] == list(expected.values())
