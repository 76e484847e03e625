"""The plan of a run on a real cluster: starts that come true, and nothing is changed anywhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.waiting import until

pytestmark = pytest.mark.timeout(600)

SETTINGS = """
[profiles.waiting]
gpu = "a40"
memory = "1G"
time = "4h"
program = ["sleep", "600"]

[clusters.site.gpus.a100]
partition = "gpu-a100"
memory = "80G"
"""
MINUTE = 60.0
HOUR = 3600
DAY = 24 * HOUR


class Person:
    """The user, who plans and sees what comes of it."""

    def __init__(self, user: User) -> None:
        self.user, self.cluster = user, user.cluster

    def plans(self, *words: str) -> dict[str, Any]:
        return dict(json.loads(self.user.types("plan", "--json", *words)))

    def foresees(self, *words: str) -> dict[tuple[str, int], float | None]:
        """Predicted starts by GPU and seconds asked for: Unix seconds."""
        starts = self.plans("--profile", "waiting", *words)["starts"]
        return {(one["gpu"], one["time_limit_seconds"]): one["start"] for one in starts}

    def on_login(self, text: str) -> str:
        done = self.cluster.run("login", ["sh", "-c", f"cd /tmp; {text}"], user=self.cluster.user)
        return done.stdout.strip()

    def fills(self, minutes: int, name: str = "holder") -> str:
        """Occupy all of the a40's GPUs, or wait for them."""
        job = f"sbatch --parsable -J {name} -p gpu-a40 --gpus=a40:4 -c 1 --mem=100M -t {minutes} -o /dev/null"
        return self.on_login(f"{job} --wrap 'sleep 900'")

    def scheduled(self, run_id: str) -> float:
        """When Slurm starts, or has started, the run's job: Unix seconds."""
        rows: list[str] = []

        def known() -> bool:
            words = f"TZ=UTC0 SLURM_TIME_FORMAT=standard squeue -h -o '%S' --name {run_id}"
            rows[:] = [row for row in self.on_login(words).split() if row != "N/A"]
            return bool(rows)

        until(known)
        return datetime.fromisoformat(rows[0]).replace(tzinfo=UTC).timestamp()

    def running(self, run_id: str) -> bool:
        return self.on_login(f"squeue -h -o %T --name {run_id}") == "RUNNING"


@pytest.fixture(scope="module")
def person(user: User) -> Iterator[Person]:
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace('a100 = { partition = "gpu-a100" }\n', "")
    settings.write_text(text + SETTINGS)
    person = Person(user)
    yield person
    user.cluster.run("login", ["scancel", "-u", user.cluster.user], user=user.cluster.user)
    user.cluster.run("ctl", ["scontrol", "delete", "ReservationName=works"], check=False)
    until(lambda: not person.on_login("squeue -h"))  # other tests look at what changes on the disks


def test_a_plan_changes_nothing_there(person: Person, cluster: Cluster) -> None:
    def tree() -> dict[str, int]:
        return {
            str(path): path.lstat().st_mtime_ns
            for top in (cluster.share, cluster.home)
            for path in (top, *top.rglob("*"))
        }

    until(lambda: not person.on_login("squeue -h"))
    before = tree()
    with person.user.logging_in(1):
        plan = person.plans("--profile", "tiny")
    assert plan["upload"]["bytes"] > 0
    assert tree() == before


def test_predicted_starts_come_true(person: Person, cluster: Cluster) -> None:
    user = person.user
    user.types("deploy")
    reservation = "starttime=now+2hours duration=60 users=root nodes=a100n1 flags=maint reservationname=works"
    cluster.run("ctl", ["sh", "-c", f"scontrol create reservation {reservation}"])
    holder = person.fills(minutes=1)
    until(lambda: person.on_login(f"squeue -h -o %T -j {holder}") == "RUNNING")

    first = person.foresees("--times", "1h,4h,2d")
    assert first["a40", 2 * DAY] is None, "the partition allows a day; sbatch itself says nothing"
    assert first["a100", HOUR] == pytest.approx(time.time(), abs=MINUTE)
    soon, works = first["a40", HOUR], first["a100", 4 * HOUR]
    assert soon is not None
    assert works is not None
    assert works > time.time() + 2 * HOUR
    advice = person.plans("--profile", "tiny-a100", "--time", "4h", "--times", "1h", "--gpus", "a100")[
        "advice"
    ]
    assert advice["ask"] == {"gpu": "a100", "time_limit_seconds": HOUR}
    assert "request 1h with --until-done: it starts now" in advice["text"]

    run = user.submits("--profile", "waiting", "--time", "1h")
    # behind the maintenance: as Slurm itself schedules the same request
    late = user.submits("--profile", "waiting", "--sbatch", "partition=gpu-a100", "--sbatch", "gpus=a100:1")
    assert person.scheduled(late) == pytest.approx(works, abs=MINUTE)
    # now one waits there: the answer is a bound, and a job that fits into the gap before it starts at once
    bound = person.plans("--profile", "waiting", "--times", "1h")["starts"]
    hour = next(one for one in bound if (one["gpu"], one["time_limit_seconds"]) == ("a100", HOUR))
    assert hour["waiting"] == 1
    short = user.submits(
        "--profile", "waiting", "--time", "1h", "--sbatch", "partition=gpu-a100", "--sbatch", "gpus=a100:1"
    )
    until(lambda: person.running(short))
    assert person.scheduled(short) <= hour["start"]
    # behind a job that waits
    person.fills(minutes=10, name="filler")
    until(lambda: person.scheduled("filler") > soon + HOUR / 2)
    behind = person.foresees("--times", "4h")["a40", 4 * HOUR]
    assert behind is not None
    assert behind > soon + HOUR
    last = user.submits("--profile", "waiting")
    assert person.scheduled(last) == pytest.approx(behind, abs=MINUTE)
    # the short way: what was predicted first has happened
    until(lambda: person.running(run))
    assert person.scheduled(run) == pytest.approx(soon, abs=2 * MINUTE)  # limits end within half a minute
