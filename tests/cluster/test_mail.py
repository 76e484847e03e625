"""Mail from a real Slurm at the end of a run: one, however many jobs and attempts the run took."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.waiting import until

SETTINGS = """
[profiles.tiny]
gpu = "a40"
memory = "50M"
time = "5m"
program = ["sh", "-c", '{program}', "sh"]

[profiles.swells]
extends = "tiny"
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
    return User.bare(tmp_path_factory.mktemp("mail"), cluster, SETTINGS, program=PROGRAM)


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--", "0"), "COMPLETED"),
        (("--", "3"), "FAILED"),
        (("--profile", "swells", "--", "swells"), "COMPLETED"),
        (("--first", "gpu:a40,a100"), "COMPLETED"),
        (("--seeds", "1..3"), "Ended"),
    ],
    ids=["completed", "failed", "after its second try", "of several requests", "array"],
)
def test_a_submission_is_mailed_once(laptop: User, words: tuple[str, ...], said: str) -> None:
    mail = the_mail(laptop, laptop.submits(*words))
    assert said in mail
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
