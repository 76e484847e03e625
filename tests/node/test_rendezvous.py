"""The nodes of a run find each other: processes of this machine, which meet on its loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from clusterkit.node import rendezvous
from clusterkit.node.rendezvous import EXIT_APART, ApartError, interfaces, meet
from tests.waiting import until

PROGRAM = """
import json, os, socket
if os.environ["NODE_RANK"] == "0":
    with socket.socket() as server:
        server.bind((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))
print(json.dumps(dict(os.environ)))
"""


def start(
    folder: Path, node: int, nodes: int, interface: str = "lo", per_node: int = 1
) -> subprocess.Popen[str]:
    own = {
        "CLUSTERKIT_NODE": str(node),
        "CLUSTERKIT_NODES": str(nodes),
        "CLUSTERKIT_RANKS": str(nodes * per_node),
        "CLUSTERKIT_NODE_NAME": f"n{node}",
        "CLUSTERKIT_INTERFACE": interface,
    }
    argv = [sys.executable, rendezvous.__file__, str(folder), sys.executable, "-c", PROGRAM]
    return subprocess.Popen(
        argv, env={**os.environ, **own}, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_all_get_the_same_meeting_point_and_each_its_own_number(tmp_path):
    processes = [start(tmp_path, node, 3, per_node=2) for node in (2, 1, 0)]
    ended = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], ended
    told = [json.loads(out.splitlines()[-1]) for out, _ in ended]
    assert {each["MASTER_ADDR"] for each in told} == {"127.0.0.1"}
    assert len({each["MASTER_PORT"] for each in told}) == 1
    for number, each in zip((2, 1, 0), told, strict=True):
        expected = {"RANK": number, "NODE_RANK": number, "GROUP_RANK": number, "PET_NODE_RANK": number}
        expected |= {"WORLD_SIZE": 3, "NNODES": 3, "PET_NNODES": 3, "PET_NPROC_PER_NODE": 2}
        expected |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "PET_MASTER_PORT": each["MASTER_PORT"]}
        assert {key: each[key] for key in expected} == {key: str(value) for key, value in expected.items()}
        assert each["GLOO_SOCKET_IFNAME"] == each["NCCL_SOCKET_IFNAME"] == "lo"
    assert "3 nodes have met at 127.0.0.1, port" in ended[2][0]


def test_an_interface_that_is_not_there_ends_it_at_once_and_names_those_that_are(tmp_path):
    process = start(tmp_path, 1, 2, interface="ib9")
    _, said = process.communicate(timeout=20)
    assert process.returncode == EXIT_APART
    assert said.startswith(
        "[clusterkit] the nodes cannot meet: on n1, there is no network interface ib9 here"
    )
    assert said.count("\n") == 1


def test_the_loopback_is_no_way_to_other_nodes():
    assert "lo" not in interfaces(None) if len(socket.if_nameindex()) > 1 else True
    assert interfaces("lo") == {"lo": "127.0.0.1"}


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(rendezvous, "_REACHING", 0.5)
    monkeypatch.setattr(rendezvous, "_CONNECTING", 0.2)
    monkeypatch.setattr(rendezvous, "_STARTING", 3.0)


def test_a_first_node_behind_a_wall_is_named_with_its_address(tmp_path, hasty):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and it does not listen
        there = {"name": "n0", "addresses": ["127.0.0.1"], "port": closed.getsockname()[1], "key": "k"}
        (tmp_path / "node-0.json").write_text(json.dumps(there))
        with pytest.raises(ApartError, match=r"node n1 cannot reach n0 through lo: port \d+ of 127.0.0.1: "):
            meet(str(tmp_path), 1, "n1", 2, "lo", 1)


def test_somebody_else_who_listens_there_is_not_the_first_node(tmp_path, hasty):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            while True:
                try:
                    with other.accept()[0] as visitor:
                        visitor.recv(100)
                        visitor.sendall(b'{"key": "wrong"}\n')
                except OSError:
                    return

        threading.Thread(target=answer, daemon=True).start()
        there = {"name": "n0", "addresses": ["127.0.0.1"], "port": other.getsockname()[1], "key": "k"}
        (tmp_path / "node-0.json").write_text(json.dumps(there))
        with pytest.raises(ApartError, match="somebody else answers there"):
            meet(str(tmp_path), 1, "n1", 2, "lo", 1)


@pytest.mark.slow
def test_a_node_that_came_and_does_not_connect_is_named(tmp_path, hasty):
    (tmp_path / "node-1.json").write_text('{"name": "n1"}')
    with pytest.raises(ApartError, match=r"node n1 did not reach n0 at 127.0.0.1 \(lo\), port \d+"):
        meet(str(tmp_path), 0, "n0", 2, "lo", 1)


@pytest.mark.slow
@pytest.mark.parametrize("node", [0, 1])
def test_a_node_that_never_comes_is_not_waited_for_without_end(tmp_path, hasty, node):
    with pytest.raises(ApartError, match="after 3 s"):
        meet(str(tmp_path), node, f"n{node}", 2, "lo", 1)


def test_strangers_at_the_door_change_nothing(tmp_path):
    first = start(tmp_path, 0, 2)
    addresses = tmp_path / "node-0.json"
    until(addresses.exists)
    port = json.loads(addresses.read_text())["port"]
    for words in (b"GET / HTTP/1.0\r\n\r\n\n", b'{"key": "wrong", "node": 1, "reached": ["x"]}\n', b""):
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(words)
    second = start(tmp_path, 1, 2)
    assert first.wait(60) == second.wait(60) == 0
    for process in (first, second):
        process.communicate()
