"""One authentication for many commands, in this process and in others."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.kept import client
from clusterkit.transport.kept.folder import socket_paths
from tests.doubles.code_sshd import CodeSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import Answers
from tests.transport.kept.commands import elsewhere, says, to, until
from tests.transport.runtime import keepers

pytestmark = pytest.mark.slow  # each test starts a keeper


def test_one_code_for_all_commands(serve: Callable[..., CodeSshd], here: Path, there: Path) -> None:
    server = serve()
    ask = Answers(server.codes.next())
    (here / "file").write_text("content")
    with closing(to(server, keep=60, ask=ask)) as first:
        first.push(here, str(there))
    for _ in range(2):  # no answer is left, and there is nobody to ask
        done = elsewhere(server)
        assert done.communicate(timeout=120)[0] == "here\n[]\n"  # nor is the time for paramiko spent
    assert says(to(server)) == "here\n"
    assert (ask.left, server.accepted_logins()) == ([], 1)


def test_one_code_a_hop_for_all_commands(serve: Callable[..., CodeSshd], tmp_path: Path) -> None:
    servers = first, second, node = serve("first"), serve("second"), serve("node")
    node.ssh_config.write_text(
        "\n".join(
            [first.host_block(), second.host_block(), node.host_block(lines=["ProxyJump first,second"])]
        )
    )
    ask = Answers(*(server.codes.next() for server in servers))
    for _ in range(3):
        assert says(to(node, keep=60, ask=ask)) == "here\n"
    assert [server.accepted_logins() for server in servers] == [1, 1, 1]


def test_without_it_every_command_logs_in(serve: Callable[..., CodeSshd]) -> None:
    server = serve()
    for number in (1, 2, 3):
        assert says(to(server, ask=Answers(server.codes.next()))) == "here\n"
        assert server.accepted_logins() == number


def test_two_that_start_together_share_one_login(server: LoopbackSshd) -> None:
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: says(to(server, keep=60)), range(4))) == {"here\n"}
    assert server.accepted_logins() == 1


def test_commands_of_several_processes_at_once(server: LoopbackSshd) -> None:
    with closing(to(server, keep=60)):
        commands = [elsewhere(server, f"sleep 0.3; echo {number}") for number in range(4)]
        assert [command.communicate(timeout=120)[0] for command in commands] == [
            f"{number}\n[]\n" for number in range(4)
        ]
    assert server.accepted_logins() == 1


def test_nothing_piles_up(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        (pid,) = keepers(folder)

        def held() -> tuple[int, int]:
            return len(list(Path(f"/proc/{pid}/fd").iterdir())), len(
                list(Path(f"/proc/{pid}/task").iterdir())
            )

        far.run(["true"])
        time.sleep(0.3)
        before = held()
        for number in range(11):
            assert far.run(["echo", str(number)], check=False).text == f"{number}\n"
            client.find(socket_paths()[0]).close()
            with suppress(TransportError):
                far.run(["sleep", "5"], timeout=0.05) if number % 10 == 0 else None
            lines = far.stream(["yes"])
            next(lines)
            lines.close()
        until(lambda: held() <= before)


def test_through_a_proxy_command(server: LoopbackSshd, folder: Path) -> None:
    """Which lives as long as the keeper."""
    hop = f"sh -c 'exec 3<>/dev/tcp/127.0.0.1/{server.port}; cat <&3 & cat >&3'".replace("sh -c", "bash -c")
    server.ssh_config.write_text(server.host_block(lines=[f"ProxyCommand {hop}"]))
    assert says(to(server, keep=60)) == "here\n"
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 1
    assert [client.end(path) for path in socket_paths()] == ["node"]
    until(lambda: not keepers(folder))
    until(lambda: not server.sessions())
