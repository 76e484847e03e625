"""`clusterkit doctor` on a real Slurm: green where all is well, and each planted fault named by its check."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from clusterkit.checkup.order import CHECKS
from tests.cluster.ailments import (
    healthy,
    modules_only,
    sick_laptop,
    sick_login,
    sick_node,
    tell_of_gpus,
)
from tests.cluster.cluster import Cluster
from tests.cluster.fixtures import own_cluster
from tests.cluster.image import trainer_image
from tests.cluster.laptop import User
from tests.cluster.small_image import small_image
from tests.cluster.trouble import make_trouble, spoil
from tests.doubles.wandb_server import API_KEY, WandbServer

AT_LEAST = 37
"""Of the faults below; 19 of 20 would do."""
OF_PROFILES = {
    "wrong-partition": "partition",
    "closed-partition": "partition",
    "wrong-account": "account",
    "closed-account": "account",
    "wrong-qos": "qos",
    "wrong-gpu": "gres",
    "too-many-gpus": "gres",
    "too-long": "time-limit",
    "too-much-memory": "size",
    "too-many-cpus": "size",
    "unknown-gpu": "profile",
}

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def site() -> Iterator[Cluster]:
    """A cluster of its own: what is done to its nodes is no company for other tests."""
    with own_cluster() as running:
        make_trouble(running)
        yield running


@pytest.fixture(scope="module")
def person(site: Cluster, tmp_path_factory: pytest.TempPathFactory) -> User:
    return healthy(tmp_path_factory.mktemp("laptop"), site, trainer_image(site), small_image(site))


def asks(user: User, *words: str, code: int = 1, **variables: str) -> dict[str, Any]:
    """`doctor --json`, which ends with that code."""
    done = user.tries("doctor", "--json", *words, **variables)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def ill(document: dict[str, Any], profile: str | None = None) -> dict[str, str]:
    """The checks that did not pass, of everything or of one profile, and what they saw."""
    return {
        check["name"]: check["evidence"]
        for check in document["checks"]
        if check["outcome"] in ("warn", "fail") and check["profile"] in (None, profile)
    }


@pytest.fixture(scope="module")
def green(person: User) -> dict[str, Any]:
    """A look at a site with nothing wrong, and into the trainer's image on a node."""
    with WandbServer() as server:
        key = {"WANDB_API_KEY": API_KEY, "WANDB_BASE_URL": server.url}
        return asks(person, "-p", "tiny", code=0, **key)


def test_a_healthy_site_is_green(green: dict[str, Any]) -> None:
    assert green["works"]
    assert [check for check in green["checks"] if check["outcome"] != "pass"] == []
    of_settings = {"prelude", "binds", "cuda", "mps", "nodes", "environment"}
    assert {check["name"] for check in green["checks"]} == {check.name for check in CHECKS} - of_settings


def test_nothing_stays_behind(person: User, green: dict[str, Any]) -> None:
    assert {path.name for path in person.root.iterdir()} == {"images"}
    queued = person.cluster.run("ctl", ["squeue", "-h"]).stdout
    assert queued == ""


def test_a_person_reads_it(person: User, green: dict[str, Any]) -> None:
    done = person.tries("doctor", "--no-job", "-c", "forbidden", "-p", "bare")
    assert done.returncode == 1
    assert (
        "  FAIL  root            /forbidden/alice does not exist, and you may not write to /" in done.stdout
    )
    assert "cure  set `root` of [clusters.forbidden] to a folder of your own" in done.stdout
    assert "skip  modes: root failed" in done.stdout


@pytest.fixture(scope="module")
def found(person: User, green: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every fault planted: its name -> the check that must name it, and the checks that did not pass."""
    faults: dict[str, Any] = {}

    def plant(document: dict[str, Any], names: Sequence[str], profile: str | None = None) -> None:
        faults.update({f"{profile or ''} {name}".strip(): (name, ill(document, profile)) for name in names})

    of_profiles = [word for name in OF_PROFILES for word in ("-p", name)]
    document = asks(person, "--no-job", *of_profiles)
    for profile, name in OF_PROFILES.items():
        plant(document, [name], profile)

    laptop = sick_laptop(tmp_path_factory.mktemp("sick"), person)
    (laptop.folder / "typo.toml").write_text('[project]\ndefault_clutser = "site"\n')
    plant(asks(laptop, "--no-job", "--config", "typo.toml"), ["settings"])
    nobody = {"WANDB_API_KEY": API_KEY, "WANDB_BASE_URL": "http://127.0.0.1:9"}
    document = asks(laptop, "--no-job", "-c", "changed", **nobody)
    plant(document, ["ledger", "host-key", "ssh-key", "wandb-server"])
    (laptop.folder / ".clusterkit/ledger.sqlite3").unlink()
    plant(asks(laptop, "--no-job", "-c", "nowhere"), ["reachable", "image-here"])

    with sick_login(person.cluster):
        document = asks(person, "--no-job", "-c", "forbidden", "-p", "bare")
        plant(document, ["shell-quiet", "clock", "rsync-there", "root"])
        plant(asks(person, "--no-job", "-c", "full", "-p", "bare"), ["room"])  # nothing was deployed there
    with modules_only(person.cluster):
        plant(asks(person, "--no-job", "-c", "forbidden", "-p", "bare"), ["slurm-tools"])
        cured = asks(person, "-c", "cured", "-p", "bare", code=0)
        assert not [
            check for check in cured["checks"] if check["place"] in ("scheduler", "node") and check["cure"]
        ]
    faults |= spoiled(person)

    with sick_node(person.cluster):
        document = asks(person, "-c", "sick", "-p", "sick")
        node = ["prelude", "scratch", "binds", "driver", "shared-memory", "node-clock"]
        plant(document, node, "sick")
    tell_of_gpus(person.cluster, "a40n1", "", "")
    plant(asks(person, "-c", "no-runtime"), ["runtime", "gpu"], "tiny")
    plant(asks(person, "-c", "own-disk", "-p", "bare"), ["root-shared"], "bare")
    person.cluster.run("ctl", ["sh", "-c", "kill $(pidof slurmdbd) $(pidof slurmctld)"])
    plant(asks(person, "--no-job", "-c", "tiny", "-p", "bare"), ["controller", "accounting"])
    return faults


def spoiled(person: User) -> dict[str, Any]:
    """Images that were damaged in the store; `--fix` brings the first."""
    document = asks(person, "--no-job", "--fix", "-c", "tiny", "-p", "bare", code=0)
    assert {check["name"] for check in document["checks"] if check["fixed"]} == {"root", "image-there"}
    (image,) = (person.cluster.share / "alice/tiny/images").glob("*.sif")
    faults = {}
    for how, name in (("flipped", "image-whole"), ("torn", "image-there")):
        spoil(image, how)
        faults[f"{how} image"] = (name, ill(asks(person, "--no-job", "-c", "tiny", "-p", "bare")))
    return faults


def test_each_planted_fault_is_named(found: dict[str, Any], request: pytest.FixtureRequest) -> None:
    missed = [fault for fault, (check, seen) in found.items() if check not in seen]
    line = request.config.get_terminal_writer().line
    line()
    for fault, (check, seen) in found.items():
        mark = "NOT" if fault in missed else "   "
        line(f"{mark} {fault:<30} {check:<14} {seen.get(check, ', '.join(seen))[:110]}")
    line(f"doctor: {len(found) - len(missed)} of {len(found)} planted faults named")
    assert len(found) - len(missed) >= AT_LEAST
    assert missed == []
