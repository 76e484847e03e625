"""Another user of the cluster plants his own program in every way: it never runs as Alice."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.waiting import until

SETTINGS = """
[project]
name = "journey"
default_cluster = "good"
default_profile = "mine"
program = ["sh", "-c", "id -un; echo seed $CLUSTERKIT_SEED"]

[profiles.mine]
time = "5m"
memory = "100M"
"""
CLUSTER = """
[clusters.{name}]
host = "login"
ssh_config = "{ssh_config}"
container = "none"
"""
GOOD = 'root = "/share/alice/other-user"\n'
ROOTS = {
    "good": GOOD,
    "below-bobs": 'root = "/share/evil/ck"\n',
    "moved": 'root = "/share/evil/scr"\n',
    "linked": 'root = "/share/links/ck"\n',
    "linked-by-bob": 'root = "/share/bobs-link"\n',
    "scratch": GOOD + 'scratch = "/share/evil/scratch"\n',
    "fast": GOOD + 'scratch = "/share/fast"\n',
    "store": GOOD + 'image_store = "/share/evil/images"\n',
    "lab": 'root = "/share/lab/alice"\n',
}
REFUSED = {
    "below-bobs": "/share/evil belongs to bob",
    "moved": "/share/evil belongs to bob",
    "linked": "/share/evil belongs to bob",
    "linked-by-bob": "/share/bobs-link belongs to bob",
    "scratch": "/share/evil belongs to bob",
    "fast": "/share/fast belongs to bob",
    "store": "/share/evil belongs to bob",
    "lab": "/share/lab is writable by the group bob",
}
PLANTED = "import os\nopen('/share/pwned', 'a').write(f'{os.getuid()}')\n"


@pytest.fixture(scope="module")
def alice(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """With work roots of every kind, and Bob's folders among them."""
    folder = tmp_path_factory.mktemp("laptop") / "journey"
    folder.mkdir()
    tables = (CLUSTER.format(name=name, ssh_config=cluster.ssh_config) + text for name, text in ROOTS.items())
    (folder / "clusterkit.toml").write_text(SETTINGS + "".join(tables))
    as_user(
        cluster, "bob", "umask 0; mkdir -p /share/evil/scr /share/evil/scratch /share/evil/images /share/fast"
    )
    as_user(cluster, "bob", "ln -s /share/alice /share/bobs-link")
    as_user(cluster, "alice", "mkdir -p /share/alice /share/links && ln -s /share/evil/scr /share/links/ck")
    cluster.run("login", ["sh", "-c", "mkdir /share/lab && chgrp bob /share/lab && chmod 2775 /share/lab"])
    cluster.run("login", ["install", "-d", "-o", "alice", "/share/lab/alice"])
    yield User(folder, cluster)
    names = "alice evil fast bobs-link links lab pwned"
    cluster.run("login", ["sh", "-c", f"cd /share && rm -rf {names}"])


def as_user(cluster: Cluster, user: str, script: str, node: str = "login") -> str:
    return cluster.run(node, ["sh", "-c", script], user=user).stdout


def listing(cluster: Cluster) -> str:
    return cluster.run("login", ["sh", "-c", "find /share/evil /share/fast /share/lab -ls"]).stdout


def released(alice: User, run_id: str) -> set[str]:
    """Let a held job go; its states and exit codes at the end."""
    names = f"squeue -h -o %i -n {run_id}"
    as_user(alice.cluster, "alice", f"for job in $({names}); do scontrol release $job; done")
    until(lambda: not as_user(alice.cluster, "alice", names).strip())
    booked = f"sacct -nXP -S now-1hour --name {run_id} -o State,ExitCode"

    def words() -> set[str]:
        states = set(as_user(alice.cluster, "alice", booked).split())
        return set() if states & {"PENDING", "RUNNING"} else states

    return until(words)


@pytest.mark.parametrize("name", REFUSED)
def test_a_place_that_bob_could_change_is_refused(alice: User, name: str) -> None:
    before = listing(alice.cluster)
    for command in ("submit", "deploy"):
        done = alice.tries(command, "-c", name)
        assert done.returncode == 10, done
        assert f"others could run code as you: {REFUSED[name]}" in done.stderr
        assert f"`image_store` of [clusters.{name}] to a folder that only you can change" in done.stderr
    assert listing(alice.cluster) == before


@pytest.mark.parametrize("words", [(), ("--seeds", "1,2")])
def test_bob_replaces_the_runs_of_a_job_that_waits(alice: User, words: tuple[str, ...]) -> None:
    """Alice's folder is open to all by the time; what Bob plants does not run when the job starts."""
    root = "/share/alice/other-user"
    run_id = alice.submits("-c", "good", "--sbatch", "hold", *words).split()[0]
    found = as_user(alice.cluster, "alice", "squeue -h -o %j").split()
    (job,) = [name for name in found if run_id.startswith(name)]
    as_user(alice.cluster, "alice", f"chmod 777 /share/alice {root}")
    plant = f"""
        umask 0; cd {root} && mv runs was; mv groups groups-were
        mkdir -p groups/{job} runs/{run_id}/attempts
        for file in launch.py run.json; do printf %s {shlex.quote(PLANTED)} >runs/{run_id}/$file; done
        echo 'id -u >/share/pwned' >runs/{run_id}/job.sh
        echo {root}/runs/{run_id} | tee groups/{job}/members >/dev/null
    """
    as_user(alice.cluster, "bob", plant)
    try:
        state = released(alice, job)
    finally:
        alice.cluster.run(
            "login", ["sh", "-c", f"cd {root}; rm -rf runs was groups groups-were; chmod 700 . .."]
        )
    assert state == {"FAILED|77:0"}
    assert not (alice.cluster.share / "pwned").exists()
