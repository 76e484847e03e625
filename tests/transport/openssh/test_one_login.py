"""One authentication for many commands, in this process and in others."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.openssh import master
from clusterkit.transport.openssh.kept import socket_paths
from clusterkit.transport.openssh.link import OpensshLink
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.openssh.commands import elsewhere, says, to
from tests.transport.runtime import masters
from tests.waiting import until

pytestmark = pytest.mark.slow  # each test starts a master


def test_one_login_for_all_commands(server: LoopbackSshd, here: Path, there: Path) -> None:
    (here / "file").write_text("content")
    with closing(to(server, keep=60)) as first:
        first.push(here, str(there))
    for _ in range(2):
        done = elsewhere(server)
        assert done.communicate(timeout=120)[0] == "here\n[]\n"  # nor is the time for paramiko spent
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 1


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
        (pid,) = masters(folder)

        def held() -> tuple[int, int]:
            return len(list(Path(f"/proc/{pid}/fd").iterdir())), len(
                list(Path(f"/proc/{pid}/task").iterdir())
            )

        far.run(["true"])
        time.sleep(0.3)
        before = held()
        for number in range(11):
            assert far.run(["echo", str(number)], check=False).text == f"{number}\n"
            OpensshLink(socket_paths()[0]).close()
            with suppress(TransportError):
                far.run(["sleep", "5"], timeout=0.05) if number % 10 == 0 else None
            lines = far.stream(["yes"])
            next(lines)
            lines.close()
        until(lambda: held() <= before)


def test_through_a_proxy_command(server: LoopbackSshd, folder: Path) -> None:
    """Which lives as long as the master."""
    hop = f"sh -c 'exec 3<>/dev/tcp/127.0.0.1/{server.port}; cat <&3 & cat >&3'".replace("sh -c", "bash -c")
    server.ssh_config.write_text(server.host_block(lines=[f"ProxyCommand {hop}"]))
    assert says(to(server, keep=60)) == "here\n"
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 1
    assert [master.end(path) for path in socket_paths()] == [True]
    until(lambda: not masters(folder))
    until(lambda: not server.sessions())
