"""The whole path where every login wants a key and a one-time code: one code a day, or one a command."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.allowing import allow
from tests.cluster.cluster import Cluster
from tests.cluster.code_gate import CodeGate
from tests.doubles.person import type_at_terminal
from tests.needs import needing
from tests.transport.runtime import runtime_folder
from tests.waiting import until

SETTINGS = """
[project]
default_cluster = "site"
default_profile = "tiny"
program = ["python3", "-c", "print('hello from the job')"]

[clusters.site]
host = "{host}"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
{more}

[clusters.site.gpus]
a40 = {{ partition = "gpu-a40" }}

[profiles.tiny]
gpu = "a40"
memory = "500M"
time = "5m"
"""
CHAIN = ("a40n1", "a100n1", "login")


@pytest.fixture(scope="module")
@needing("one-time codes")
def gates(cluster: Cluster) -> list[CodeGate]:
    """On two nodes on the way, and on the login node."""
    return [CodeGate(cluster, node) for node in CHAIN]


@pytest.fixture
def runtime() -> Iterator[str]:
    with runtime_folder():
        yield os.environ["XDG_RUNTIME_DIR"]


@dataclass
class Person:
    """Somebody with a token for every gate, at a terminal."""

    folder: Path
    gates: Sequence[CodeGate]
    root: Path
    """This machine's view of the cluster's work root."""
    commands: int = 0

    def types(self, *words: str) -> str:
        """Run a clusterkit command; returns what the terminal has shown."""
        done = type_at_terminal(
            words,
            {
                prompt: gate.codes.next
                for gate in self.gates
                for prompt in (f"@{gate.node}] One-time", f"@{gate.address}) One-time")
            },
            folder=self.folder,
            environment={**os.environ, "HOME": str(self.folder.parent), "COLUMNS": "200", "NO_COLOR": "1"},
        )
        assert done.returncode == 0, f"clusterkit {words}: {done.stdout}"
        self.commands += 1
        return done.stdout

    def state(self) -> str:
        shown = self.types("status", "--json", "last")
        return str(json.loads(shown[shown.index("{") :])["runs"][0]["state"])


@pytest.fixture
def settle(cluster: Cluster, gates: list[CodeGate], tmp_path: Path, runtime: str) -> Callable[..., Person]:
    def make(*more: str, hops: int) -> Person:
        folder, config = tmp_path / "project", tmp_path / "ssh_config"
        folder.mkdir()
        *jumps, goal = gates[len(gates) - hops :]
        jump = [f"ProxyJump {','.join(gate.node for gate in jumps)}"] if jumps else []
        config.write_text(
            "".join([*(gate.host_block(gate.node) for gate in jumps), goal.host_block(goal.node, *jump)])
        )
        text = SETTINGS.format(host=goal.node, ssh_config=config, root=tmp_path.name, more="\n".join(more))
        (folder / "clusterkit.toml").write_text(text)
        allow(folder)
        return Person(folder, [*jumps, goal], cluster.share / "alice" / tmp_path.name)

    return make


def the_whole_path(person: Person) -> list[int]:
    """deploy, submit, status, logs, sync-results. Returns the logins each gate has accepted for it."""
    before = [gate.logins() for gate in person.gates]
    person.types("deploy")
    person.types("submit")
    until(lambda: list(person.root.glob("runs/*/attempts/0/exit.json")))
    assert person.state() == "COMPLETED"
    assert "hello from the job" in person.types("logs", "last")
    person.types("sync-results")
    run = next((person.folder / "results").glob("*/run.json")).parent
    assert json.loads((run / "attempts/0/exit.json").read_text())["why"] == "completed"
    return [gate.logins() - old for gate, old in zip(person.gates, before, strict=True)]


def test_one_code_a_command(settle: Callable[..., Person]) -> None:
    person = settle('container = "none"', hops=1)
    assert the_whole_path(person) == [person.commands]
    assert person.commands >= 5


def test_one_code_for_everything(settle: Callable[..., Person], small_sif: Path) -> None:
    """The image included."""
    person = settle(f'image = "{small_sif}"', 'keep_login = "10m"', hops=1)
    assert the_whole_path(person) == [1]
    assert person.types("logout") == "login: logged out\r\n"


def test_one_code_a_hop_through_two_jump_hosts(settle: Callable[..., Person]) -> None:
    person = settle('container = "none"', 'keep_login = "10m"', hops=3)
    assert the_whole_path(person) == [1, 1, 1]
