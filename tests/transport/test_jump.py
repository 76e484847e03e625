"""Roads through jump hosts and ProxyCommands, on real servers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.factory import connect
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.processes import processes
from tests.waiting import until


@pytest.fixture(scope="module")
@needing("sshd")
def gate(tmp_path_factory: pytest.TempPathFactory, sshd: LoopbackSshd) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path_factory.mktemp("gate") / "sshd", alias="gate")) as server:
        yield server


def config(folder: Path, *blocks: str) -> Path:
    path = folder / "ssh_config"
    path.write_text("\n".join(blocks))
    return path


@pytest.mark.slow
def test_through_one_jump_host(
    sshd: LoopbackSshd, gate: LoopbackSshd, tmp_path: Path, here: Path, there: Path
) -> None:
    path = config(tmp_path, gate.host_block(), sshd.host_block(lines=["ProxyJump gate"]))
    (here / "file").write_bytes(bytes(3_000_000))
    before = sshd.accepted_logins(), gate.accepted_logins()
    with closing(connect("node", ssh_config=path)) as transport:
        assert transport.run(["sh", "-c", 'echo "${SSH_CONNECTION##* }"']).text == f"{sshd.port}\n"
        transport.push(here, str(there))
    assert (there / "file").read_bytes() == bytes(3_000_000)
    assert (sshd.accepted_logins(), gate.accepted_logins()) == (before[0] + 1, before[1] + 1)


def test_each_hop_checks_its_host_key(sshd: LoopbackSshd, gate: LoopbackSshd, tmp_path: Path) -> None:
    unknown = gate.host_block(lines=[f"UserKnownHostsFile {tmp_path / 'none'}"])
    path = config(tmp_path, unknown, sshd.host_block(lines=["ProxyJump gate"]))
    with pytest.raises(TransportError, match=r"node .* cannot be reached through gate; ssh says: ") as caught:
        connect("node", ssh_config=path)
    assert caught.value.hint == f"to see what the host in between objects to: ssh -F {path} node"


def test_a_target_the_jump_host_cannot_reach(sshd: LoopbackSshd, gate: LoopbackSshd, tmp_path: Path) -> None:
    path = config(tmp_path, gate.host_block(), sshd.host_block(lines=["Port 1", "ProxyJump gate"]))
    with pytest.raises(
        TransportError, match=r"node \(127\.0\.0\.1:1\) cannot be reached through gate; ssh says: "
    ):
        connect("node", ssh_config=path)


def test_jumping_in_circles(gate: LoopbackSshd, tmp_path: Path) -> None:
    path = config(tmp_path, gate.host_block(lines=["ProxyJump other"]), "Host other\n    ProxyJump gate\n")
    with pytest.raises(TransportError, match="is circular"):
        connect("gate", ssh_config=path)


@pytest.mark.slow
def test_a_proxy_command_with_shell_syntax(sshd: LoopbackSshd, gate: LoopbackSshd, tmp_path: Path) -> None:
    hop = f"ssh -F {tmp_path / 'ssh_config'} -W %h:%p gate 2>{tmp_path / 'errors'}"
    path = config(tmp_path, gate.host_block(), sshd.host_block(lines=[f"ProxyCommand {hop}"]))
    with closing(connect("node", ssh_config=path)) as transport:
        assert transport.run(["echo", "far"]).text == "far\n"
        assert (tmp_path / "errors").exists()
    until(lambda: not any(str(tmp_path) in process.arguments for process in processes()))


def test_a_proxy_command_that_fails_is_noticed_at_once(sshd: LoopbackSshd, tmp_path: Path) -> None:
    path = config(tmp_path, sshd.host_block(lines=["ConnectTimeout 60", "ProxyCommand false"]))
    start = time.monotonic()
    with pytest.raises(TransportError, match="cannot be reached through the ProxyCommand; ssh says"):
        connect("node", ssh_config=path)
    assert time.monotonic() - start < 30
