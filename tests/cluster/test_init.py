"""init on real clusters it has never seen: what it writes is enough, unedited, to deploy and submit.

`doctor` is green with it, on a node of each GPU type.
"""

from __future__ import annotations

import json
import platform
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clusterkit.runtimes import BUILDER
from tests.cluster.ailments import tell_of_gpus
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.cluster.other_site import other_cluster
from tests.doubles.wandb_server import API_KEY, WandbServer

OWN_PROGRAM = """
[project]
program = ["sh", "-c", "echo here is $(hostname) with GPU $CUDA_VISIBLE_DEVICES"]
"""
"""In the user's own file: there is no GPU here to train on, and what init writes stays as it is."""
PROFILES = ("a40", "a100")


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Cluster]:
    """The cluster that spells everything differently."""
    with other_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def newcomer(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    """A person with a login on the usual cluster, and no settings."""
    return _newcomer(cluster, tmp_path_factory.mktemp("newcomer"))


@pytest.fixture(scope="module")
def stranger(elsewhere: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    """The same on the other one."""
    return _newcomer(elsewhere, tmp_path_factory.mktemp("stranger"))


def _newcomer(cluster: Cluster, home: Path) -> User:
    folder = home / "mine"
    folder.mkdir()
    own = home / ".config/clusterkit/config.toml"
    own.parent.mkdir(parents=True)
    own.write_text(OWN_PROGRAM)
    return User(folder, cluster)


def describes(user: User, image: Path, *words: str) -> dict[str, Any]:
    """Run init once; returns what the file holds."""
    before = tree(user.cluster)
    with user.logging_in(times=1):
        user.types(
            *("init", "login", "--yes", "--name", "site", "--image", str(image), *words),
            *("--ssh-config", str(user.cluster.ssh_config)),
        )
    assert tree(user.cluster) == before
    return tomllib.loads((user.folder / "clusterkit.toml").read_text())


def tree(cluster: Cluster) -> list[tuple[str, int]]:
    """All that the user could have changed there, but what a login itself leaves."""
    found = [path for top in (cluster.home, cluster.share) for path in top.rglob("*")]
    return sorted((str(path), path.lstat().st_mtime_ns) for path in found)


def runs_on_both(user: User) -> list[str]:
    """Deploy, examine and submit the small profile of each GPU type; what the two jobs said."""
    user.types("deploy")
    assert not_passed(user) == set()
    ids = [user.submits("--profile", profile) for profile in PROFILES]
    assert {run["state"] for run in user.ended(*ids).values()} == {"COMPLETED"}
    logs = [user.types("logs", run_id, "-n", "1000") for run_id in ids]
    assert "is preferred" not in "".join(logs)  # the runtime complains of nothing that is ours
    return [found[0] for log in logs if (found := re.search(r"here is .*", log))]


def not_passed(user: User) -> set[tuple[str, str, str]]:
    """Let doctor, which must be content, look at everything down to both nodes; what it has remarks on."""
    for node, name in (("a40n1", "A40"), ("a100n1", "A100")):
        tell_of_gpus(user.cluster, node, name, "570.86.15")
    asked = [word for profile in PROFILES for word in ("--profile", profile)]
    try:
        with WandbServer() as server:
            key = {"WANDB_API_KEY": API_KEY, "WANDB_BASE_URL": server.url}
            document = json.loads(user.types("doctor", "--json", *asked, **key))
    finally:
        for node in ("a40n1", "a100n1"):
            tell_of_gpus(user.cluster, node, "", "")
    return {
        (check["profile"], check["name"], check["outcome"])
        for check in document["checks"]
        if check["outcome"] != "pass"
    }


def test_a_cluster_never_seen(newcomer: User, small_sif: Path) -> None:
    written = describes(newcomer, small_sif)
    site = written["clusters"]["site"]
    assert {name: gpu["partition"] for name, gpu in site["gpus"].items()} == {
        "a40": "gpu-a40",
        "a100": "gpu-a100",
    }
    assert (site["container"], site["max_time"], site["root"]) == (
        "apptainer",
        "1d",
        "/share/$USER/clusterkit",
    )
    assert "account" not in site
    assert site["arch"] == platform.machine()
    assert runs_on_both(newcomer) == ["here is a40n1 with GPU 0", "here is a100n1 with GPU 0"]
    refuses_other_processors(newcomer, small_sif)


def refuses_other_processors(user: User, image: Path) -> None:
    """Before anything is sent; and the words by which `why` would know it are Apptainer's own."""
    codes = {"x86_64": b"02\0", "aarch64": b"04\0"}
    here = platform.machine()
    (other,) = codes.keys() - {here}
    system = b"\1\0\0\0\2\0\0\0"  # a squashfs, the primary one; Apptainer asks what is written beside it
    content = image.read_bytes()
    for before in (b"SIF_MAGIC\00001\0", system):
        content = content.replace(before + codes[here], before + codes[other], 1)
    foreign = user.cluster.share / "foreign.sif"
    foreign.write_bytes(content)
    refused = user.tries("deploy", "--image", str(foreign))
    assert refused.returncode == 6
    assert f"is for {other}, and the nodes of site are {here}" in refused.stderr
    run = ["apptainer", "exec", "/share/foreign.sif", "true"]
    said = user.cluster.run("a40n1", run, user=user.cluster.user, check=False).stderr
    assert re.search(BUILDER.says["image-architecture"], said), said


def test_a_cluster_that_spells_everything_differently(stranger: User, small_sif: Path) -> None:
    undecided = stranger.tries("init", "login", "--ssh-config", str(stranger.cluster.ssh_config))
    assert undecided.returncode == 3
    assert "guests, project" in undecided.stderr
    assert "--account" in undecided.stderr
    site = describes(stranger, small_sif)["clusters"]["site"]
    assert (site["container"], site["login_shell"], site["account"]) == ("singularity", True, "guests")
    assert {name: (gpu["partition"], gpu["request"]) for name, gpu in site["gpus"].items()} == {
        "a40": ("deep", "--gres=gpu:{count}"),
        "a100": ("tesla-a100", "--gres=gpu:{count}"),
    }
    assert runs_on_both(stranger) == ["here is a40n1 with GPU 0", "here is a100n1 with GPU 0"]
    charged = stranger.cluster.run("ctl", ["squeue", "-h", "-t", "all", "-o", "%N %a"]).stdout
    assert set(charged.splitlines()) == {"a100n1 project", "a40n1 guests"}  # doctor's jobs as well
