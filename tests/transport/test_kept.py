"""One login for many commands: who may use it, when it ends, and that nothing fails because of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport import reconnect
from clusterkit.transport.base import SyncOptions, Transport
from clusterkit.transport.factory import connect
from clusterkit.transport.kept import client, messages
from clusterkit.transport.kept.folder import NotPrivateError, private_folder, socket_name, socket_paths
from clusterkit.transport.questions import Question
from clusterkit.transport.resolve import resolve
from tests.doubles.code_sshd import CodeSshd, why_not
from tests.doubles.loopback_sshd import LoopbackSshd, find_sshd
from tests.transport.answers import Answers
from tests.transport.runtime import keepers, runtime_folder
from tests.transport.test_liveness import Link

COMMAND = """
import pathlib, sys
from clusterkit.transport.factory import connect
far = connect("node", ssh_config=pathlib.Path(sys.argv[1]))
print(far.run(["sh", "-c", sys.argv[2]]).text, end="")
print([name for name in ("paramiko", "cryptography") if name in sys.modules])
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with runtime_folder():
        yield Path(os.environ["XDG_RUNTIME_DIR"])


@pytest.fixture
def server(tmp_path: Path, folder: Path) -> Iterator[LoopbackSshd]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed")
    with closing(LoopbackSshd(tmp_path / "sshd")) as running:
        yield running


@pytest.fixture
def serve(tmp_path: Path, folder: Path) -> Iterator[Callable[[str], CodeSshd]]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with ExitStack() as stack:
        yield lambda alias="node": stack.enter_context(closing(CodeSshd(tmp_path / alias, alias=alias)))


def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def to(server: LoopbackSshd, keep: float | None = None, ask: Answers | None = None) -> Transport:
    return connect("node", ssh_config=server.ssh_config, keep=keep, ask=ask or Answers())


def says(transport: Transport) -> str:
    with closing(transport):
        return transport.run(["echo", "here"]).text


def elsewhere(server: LoopbackSshd, script: str = "echo here") -> subprocess.Popen[str]:
    """A command of its own process, with no terminal to ask on."""
    argv = [sys.executable, "-c", COMMAND, str(server.ssh_config), script]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


# one authentication --------------------------------------------------------------------------


def test_one_code_for_all_commands(serve: Callable[..., CodeSshd], here: Path, there: Path) -> None:
    server = serve()
    ask = Answers(server.codes.next())
    (here / "file").write_text("content")
    with closing(to(server, keep=60, ask=ask)) as first:
        first.push(here, str(there))
    for _ in range(3):  # no answer is left, and there is nobody to ask
        done = elsewhere(server)
        assert done.communicate(timeout=30)[0] == "here\n[]\n"  # nor is the time for paramiko spent
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
        commands = [elsewhere(server, f"sleep 0.3; echo {number}") for number in range(6)]
        assert [command.communicate(timeout=60)[0] for command in commands] == [
            f"{number}\n[]\n" for number in range(6)
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
        for number in range(100):
            assert far.run(["echo", str(number)], check=False).text == f"{number}\n"
            client.find(socket_paths()[0]).close()
            with suppress(TransportError):
                far.run(["sleep", "5"], timeout=0.05) if number % 25 == 0 else None
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


# its end -------------------------------------------------------------------------------------


def test_it_ends_when_nobody_comes(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=0.5)) as far:
        assert keepers(folder)
        far.run(["sleep", "1.5"])  # a command that runs is no idleness
        assert far.run(["echo", "here"]).text == "here\n"
    until(lambda: not keepers(folder))
    assert socket_paths() == []
    until(lambda: not server.sessions())
    assert server.accepted_logins() == 1


def test_logout_ends_it_and_tells_whoever_waits(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        assert [client.end(path) for path in socket_paths()] == ["node"]
        with pytest.raises(TransportError, match="the connection to node died: it was ended by `clusterkit"):
            next(lines)
        until(lambda: not keepers(folder))
        assert far.run(["echo", "again"]).text == "again\n"  # over a login of its own
    assert (socket_paths(), server.accepted_logins()) == ([], 2)


def test_a_connection_that_dies_ends_it(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        server.drop_connections()
        with pytest.raises(TransportError, match="the connection to node died: the server or the network"):
            next(lines)
    until(lambda: not keepers(folder))
    assert says(to(server)) == "here\n"


def test_a_killed_keeper_is_no_obstacle(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)) as far:
        lines = far.stream(["sh", "-c", "echo on; sleep 60"])
        assert next(lines) == b"on\n"
        (pid,) = keepers(folder)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(TransportError, match="the connection to node died: the background session ended"):
            next(lines)
    assert len(socket_paths()) == 1  # stale
    assert says(to(server)) == "here\n"
    assert says(to(server, keep=60)) == "here\n"
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 3


def test_a_transfer_outlives_its_keeper(server: LoopbackSshd, folder: Path, here: Path, there: Path) -> None:
    data = os.urandom(20_000_000)
    (here / "big").write_bytes(data)

    def kill() -> None:
        until(lambda: sum(path.stat().st_size for path in there.glob(".big*")) > 4_000_000)
        os.kill(keepers(folder)[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    with closing(to(server, keep=60)) as far:
        killer.start()
        done = far.push(here, str(there), options=SyncOptions(bandwidth_limit=20_000_000))
        killer.join()
    assert (there / "big").read_bytes() == data
    assert done.bytes < len(data) - 2_000_000
    assert server.accepted_logins() == 2


def test_ctrl_c_at_the_question_leaves_nothing(serve: Callable[..., CodeSshd], folder: Path) -> None:
    class Interrupted(BaseException):
        pass

    def interrupt(question: Question) -> list[str]:
        raise Interrupted

    server = serve()
    with pytest.raises(Interrupted):
        connect("node", ssh_config=server.ssh_config, keep=60, ask=interrupt)
    until(lambda: not keepers(folder))
    assert (socket_paths(), server.accepted_logins()) == ([], 0)


def test_a_refused_login_says_what_it_always_says(serve: Callable[..., CodeSshd], folder: Path) -> None:
    server = serve()
    with pytest.raises(
        TransportError, match=r"refuses to log in .* keyboard-interactive \(3 times\)"
    ) as caught:
        to(server, keep=60, ask=Answers("1", "2", "3"))
    assert caught.value.hint
    assert caught.value.hint.startswith("Stopped after 3 wrong answers")
    until(lambda: not keepers(folder))


# falling back --------------------------------------------------------------------------------


def test_a_host_that_means_something_else_now(server: LoopbackSshd) -> None:
    assert says(to(server, keep=60)) == "here\n"
    server.ssh_config.write_text(server.host_block(lines=["HostName localhost", "HostKeyAlias alias"]))
    name = f"alias {server.known_hosts.read_text().split(' ', 1)[1]}"
    server.known_hosts.write_text(name)
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 2


def test_another_version(server: LoopbackSshd, folder: Path) -> None:
    path = private_folder(create=True) / socket_name(resolve("node", config=server.ssh_config))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            guest, _ = listener.accept()
            with guest:
                request = messages.receive(guest)
                messages.send(guest, {"version": messages.VERSION + 1, "host": "node"})
                seen.append(request["want"])

        seen: list[str] = []
        stranger = threading.Thread(target=answer)
        stranger.start()
        assert says(to(server)) == "here\n"
        stranger.join()
    assert (seen, server.accepted_logins()) == (["lease"], 1)


def test_a_link_that_is_dead_and_does_not_know_it(
    server: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a laptop has slept."""
    with closing(Link(server.port)) as link:
        known = tmp_path / "known"
        known.write_text(server.known_hosts.read_text().replace(str(server.port), str(link.port)))
        lines = [f"Port {link.port}", f"UserKnownHostsFile {known}", "ConnectTimeout 1"]
        server.ssh_config.write_text(server.host_block(lines=lines))
        assert says(to(server, keep=60)) == "here\n"
        link.cut.set()
        before = time.monotonic()
        monkeypatch.setattr(reconnect, "PAUSES", (0.0,))
        with pytest.raises(TransportError, match="does not answer as an SSH server"):
            to(server)
        assert time.monotonic() - before < 30


@pytest.mark.parametrize("fault", ["mode", "file"])
def test_a_folder_that_is_not_private_is_not_used(fault: str, server: LoopbackSshd, folder: Path) -> None:
    place = folder / "clusterkit"
    if fault == "mode":
        place.mkdir()
        place.chmod(0o755)
    else:
        place.write_text("in the way")
    ask = Answers()
    with pytest.raises((NotPrivateError, OSError)):
        private_folder(create=True)
    assert says(to(server, keep=60, ask=ask)) == "here\n"
    assert "The login to node is not kept: " in ask.questions[0].instructions
    assert keepers(folder) == []


# nobody else ---------------------------------------------------------------------------------


def test_modes_and_no_secret_anywhere(serve: Callable[..., CodeSshd], folder: Path) -> None:
    server = serve()
    code = server.codes.next()
    assert says(to(server, keep=60, ask=Answers(code))) == "here\n"
    (path,) = socket_paths()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert {one.name for one in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}
    assert path.with_suffix(".lock").read_text() == ""
    (pid,) = keepers(folder)
    process = Path(f"/proc/{pid}")
    assert code.encode() not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    assert "Max core file size        0 " in (process / "limits").read_text()


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user needs root")
def test_another_user_is_sent_away(server: LoopbackSshd, folder: Path) -> None:
    with closing(to(server, keep=60)):
        (path,) = socket_paths()
        for one in (folder, path.parent):
            one.chmod(0o755)
        path.chmod(0o666)
        child = os.fork()
        if child == 0:  # not a new interpreter: the other user may not be allowed to start ours
            status = 1
            try:
                os.setgroups([])
                os.setuid(65534)
                with socket.socket(socket.AF_UNIX) as stranger:
                    stranger.connect(str(path))
                    stranger.settimeout(10)
                    try:
                        messages.send(stranger, {"want": "lease", "version": messages.VERSION})
                        status = 2 if stranger.recv(100) else 0
                    except ConnectionError:
                        status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        path.parent.chmod(0o700)


def test_rubbish_on_the_socket_hurts_nobody(server: LoopbackSshd) -> None:
    with closing(to(server, keep=60)) as far:
        (path,) = socket_paths()
        for rubbish in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\2[]", b"\0\0\0\2{}", b"\xff" * 100):
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.connect(str(path))
                stranger.sendall(rubbish)
        assert far.run(["echo", "here"]).text == "here\n"
