"""Mail from a real Slurm at the end of a run: one, however many jobs and attempts the run took."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.waiting import until

SETTINGS = """
[project]
name = "mail"
default_cluster = "site"
default_profile = "brief"

[clusters.site]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
container = "none"

[clusters.site.gpus]
a40 = {{ partition = "gpu-a40" }}
a100 = {{ partition = "gpu-a100" }}

[profiles.brief]
gpu = "a40"
memory = "50M"
time = "5m"
program = ["sh", "-c", '{program}', "sh"]

[profiles.swells]
extends = "brief"
memory = "150M"
retry.memory_up_to = "600M"

[notify]
mail = "alice@example.org"
"""
PROGRAM = (
    'echo "seed $CLUSTERKIT_SEED"; cd "$CLUSTERKIT_RUN_DIR"; '
    "case $1 in again) test -e begun && exit; : >begun; exit 85;; "
    'swells) exec python3 -c "b = bytearray(2**28)"; esac; exit ${1:-0}'
)


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    return User.of(tmp_path_factory.mktemp("mail"), cluster, SETTINGS, program=PROGRAM)


def the_mail(user: User, name: str) -> str:
    """The only mail about the jobs of a run or a group, all of which have left the queue."""
    until(lambda: not user.cluster.run("ctl", ["squeue", "-h", "-o", "%j"]).stdout.count(name))
    user.types("submit", "--name", "later", "--time", "4m")  # mails go out in the order of the ends
    later = user.types("status", "last", "--json").partition('"run_id": "')[2].partition('"')[0]
    file = Path(user.cluster.share, "mail")
    until(lambda: file.exists() and later in file.read_text())
    found = [line for line in file.read_text().splitlines() if name in line]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(("argument", "told"), [("0", "COMPLETED"), ("3", "FAILED")])
def test_a_run_that_ends_is_mailed_once(laptop: User, argument: str, told: str) -> None:
    mail = the_mail(laptop, laptop.submits("--", argument))
    assert told in mail
    assert mail.endswith("alice@example.org")


@pytest.mark.parametrize("way", ["requeue", "array", "chain"])
def test_a_run_that_goes_on_is_mailed_when_it_ends(laptop: User, way: str) -> None:
    settings = laptop.folder / "clusterkit.toml"
    before = settings.read_text()
    settings.write_text(before.replace('container = "none"', f'container = "none"\ncontinue_by = "{way}"'))
    try:
        run_id = laptop.submits("--until-done", "--", "again")
    finally:
        settings.write_text(before)
    assert "COMPLETED" in the_mail(laptop, run_id)


def test_a_run_that_ran_out_of_memory_is_mailed_after_its_second_try(laptop: User) -> None:
    mail = the_mail(laptop, laptop.submits("--profile", "swells", "--", "swells"))
    assert "COMPLETED" in mail


def test_of_several_requests_only_the_one_that_took_the_run_is_mailed(laptop: User) -> None:
    mail = the_mail(laptop, laptop.submits("--first", "gpu:a40,a100"))
    assert "COMPLETED" in mail


def test_a_job_array_is_mailed_as_a_whole(laptop: User) -> None:
    assert "Ended" in the_mail(laptop, laptop.submits("--seeds", "1..3"))
