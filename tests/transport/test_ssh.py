"""What only ssh has: one login for everything, noisy shells, connections that die, disks that fill up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.folders import PARTIAL_DIR
from clusterkit.probes import script
from clusterkit.runs.record import records
from clusterkit.transport.base import SyncOptions, Transport
from clusterkit.transport.factory import connect
from clusterkit.transport.link import Channel, Link, Screen
from clusterkit.transport.session import Session
from clusterkit.transport.ssh import SshTransport
from tests.doubles import full_disk
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.programs import write_program
from tests.transport.answers import connection
from tests.waiting import until

NOISE = 'echo "*** Welcome to noisy! 漢字 ***"\nprintf "quota: 99%%" >&2\nprintf "no newline at the end"\n'
SLOW = SyncOptions(bandwidth_limit=4_000_000)


@pytest.fixture
@needing("sshd")
def serve(tmp_path: Path) -> Iterator[Callable[..., LoopbackSshd]]:
    """Starts a server of the test's own, for what must not disturb the shared one."""
    with ExitStack() as stack:

        def start(*lines: str, name: str = "own") -> LoopbackSshd:
            return stack.enter_context(closing(LoopbackSshd(tmp_path / f"sshd-{name}", lines=lines)))

        yield start


def to(server: LoopbackSshd, **options: object) -> Transport:
    return connect(server.alias, ssh_config=server.ssh_config, **options)  # type: ignore[arg-type]


def random_file(path: Path, megabytes: int) -> bytes:
    data = os.urandom(megabytes * 1_000_000)
    path.write_bytes(data)
    return data


# one login -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_rides_on_one_login(serve: Callable[..., LoopbackSshd], here: Path, there: Path) -> None:
    server = serve()
    (here / "file").write_text("content")
    with closing(to(server)) as transport:
        transport.run(["true"])
        transport.write(str(there / "note"), b"note")
        assert transport.read(str(there / "note")) == b"note"
        transport.push(here, str(there / "tree"))
        transport.push(here / "file", str(there / "single"))
        transport.pull(str(there / "tree"), here / "back")
        assert b"".join(transport.stream(["echo", "streamed"])) == b"streamed\n"
    assert server.accepted_logins() == 1


def test_closing_ends_the_connection(serve: Callable[..., LoopbackSshd]) -> None:
    server = serve()
    transport = to(server)
    assert server.sessions()
    transport.close()
    until(lambda: not server.sessions())
    with pytest.raises(TransportError, match="the connection to node died"):
        transport.run(["true"])


# noise ---------------------------------------------------------------------------------------


def noisy_bashrc(server: LoopbackSshd) -> None:
    (server.home / ".bashrc").write_text(NOISE)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["bashrc", "forced command"])
def test_noise_never_reaches_the_caller(
    how: str, serve: Callable[..., LoopbackSshd], here: Path, there: Path, tmp_path: Path
) -> None:
    if how == "bashrc":
        server = serve()
        noisy_bashrc(server)
    else:
        write_program(tmp_path, "wrapper", f'{NOISE}exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"')
        server = serve(f"ForceCommand {tmp_path}/wrapper")
    (here / "file").write_text("content")
    with closing(to(server)) as transport:
        done = transport.run(["sh", "-c", "echo out; echo err >&2"])
        assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
        assert b"".join(transport.stream(["echo", "streamed"])) == b"streamed\n"
        transport.write(str(there / "note"), b"note")
        assert transport.read(str(there / "note")) == b"note"
        transport.push(here, str(there / "tree"))
        transport.pull(str(there / "tree"), here / "back")
    assert (here / "back" / "file").read_text() == "content"


@pytest.mark.slow
def test_noise_without_end_and_output_without_end_are_ended(
    serve: Callable[..., LoopbackSshd], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    monkeypatch.setattr("clusterkit.transport.ssh._MOST_BYTES", 1 << 20)
    with closing(to(server)) as transport:
        with pytest.raises(TransportError, match="yes on node printed more than 1 MiB and was stopped"):
            transport.run(["yes"])
        endless = r"did not run the command \(its shell prints without end\): .*quota / quota"
        for noise in ("yes quota", "yes quota >&2", "yes quota >&2 & yes quota"):
            (server.home / ".bashrc").write_text(f"{noise}\n")
            with pytest.raises(TransportError, match=endless):
                transport.run(["true"])
            with pytest.raises(TransportError, match=endless):
                list(transport.stream(["true"]))


def test_a_shell_that_ends_before_the_command(
    serve: Callable[..., LoopbackSshd], here: Path, there: Path
) -> None:
    server = serve('ForceCommand echo "This account is closed." >&2; exit 7')
    with closing(to(server)) as transport:
        for action in (lambda: transport.run(["true"]), lambda: transport.push(here, str(there))):
            with pytest.raises(
                TransportError, match=r"node did not run the command \(status 7\): This account"
            ):
                action()


@pytest.mark.parametrize("script", ["", script([records(["/no/run"])])])
def test_a_shell_that_starts_another_in_its_place(serve: Callable[..., LoopbackSshd], script: str) -> None:
    """The other shell reads, and here even runs, what was for the command."""
    server = serve()
    (server.home / ".bashrc").write_text("exec sh\n")
    with closing(to(server)) as transport, pytest.raises(TransportError, match="starts another") as error:
        transport.run(["sh"], stdin=script.encode())
    assert "clusterkit-" not in error.value.cause
    assert "exec zsh" in str(error.value.hint)


def test_a_login_shell_finds_what_the_profile_adds(serve: Callable[..., LoopbackSshd], here: Path) -> None:
    server = serve()
    tools = write_program(server.home / "bin", "site-tool", "echo works")
    (server.home / ".bash_profile").write_text(f'{NOISE}PATH="{tools}:$PATH"\n')
    with closing(to(server, login_shell=True)) as transport:
        assert transport.run(["site-tool"]).stdout == b"works\n"
    with closing(to(server)) as transport, pytest.raises(TransportError, match="command not found") as caught:
        transport.run(["site-tool"])
    assert caught.value.hint
    assert "login_shell" in caught.value.hint


# few sessions --------------------------------------------------------------------------------


def test_a_server_with_few_sessions_is_waited_for(serve: Callable[..., LoopbackSshd]) -> None:
    with closing(to(serve("MaxSessions 1"))) as transport:
        results: list[bytes] = []
        workers = [
            threading.Thread(
                target=lambda: results.append(transport.run(["sh", "-c", "sleep 0.05; echo x"]).stdout)
            )
            for _ in range(6)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert results == [b"x\n"] * 6


# connections that die ------------------------------------------------------------------------


def test_a_dead_connection_is_told_to_whoever_waits(serve: Callable[..., LoopbackSshd]) -> None:
    server = serve()
    with closing(to(server)) as transport:
        lines = transport.stream(["sh", "-c", "echo on; sleep 30"])
        assert next(lines) == b"on\n"
        server.drop_connections()
        with pytest.raises(TransportError, match="the connection to node died") as caught:
            next(lines)
        assert caught.value.hint


def test_sending_on_a_broken_connection_is_an_os_error(serve: Callable[..., LoopbackSshd]) -> None:
    server = serve()
    with closing(connection(server)) as link:
        channel = link.open(b"cat > /dev/null")
        channel.send(b"well")
        link.wire.sock.shutdown(socket.SHUT_WR)  # paramiko raises EOFError
        # or, should the server have been quicker to notice, paramiko's own word for it
        with pytest.raises(OSError, match=r"connection died|Socket is closed"):
            channel.send(bytes(100))
        channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("pulling", [False, True], ids=["push", "pull"])
def test_a_transfer_goes_on_after_the_connection_died(
    pulling: bool, serve: Callable[..., LoopbackSshd], here: Path, there: Path
) -> None:
    server = serve()
    source, target = (there, here) if pulling else (here, there)
    data = random_file(source / "big", 12)
    killer = threading.Thread(
        target=lambda: (
            until(lambda: sum(path.stat().st_size for path in target.glob(".big*")) > 3_000_000),
            server.drop_connections(),
        )
    )
    with closing(to(server)) as transport:
        killer.start()
        if pulling:
            done = transport.pull(str(there), here, options=SLOW)
        else:
            done = transport.push(here, str(there), options=SLOW)
        killer.join()
    assert (target / "big").read_bytes() == data
    assert done.bytes < len(data) - 1_500_000
    assert not (target / PARTIAL_DIR).exists()
    assert server.accepted_logins() == 2


@pytest.mark.slow
def test_ctrl_c_leaves_what_has_arrived(serve: Callable[..., LoopbackSshd], here: Path, there: Path) -> None:
    server = serve()
    data = random_file(here / "big", 12)
    script = (
        "import sys, pathlib\n"
        "from clusterkit.transport.base import SyncOptions\n"
        "from clusterkit.transport.factory import connect\n"
        "t = connect('node', ssh_config=pathlib.Path(sys.argv[1]))\n"
        "t.push(pathlib.Path(sys.argv[2]), sys.argv[3], options=SyncOptions(bandwidth_limit=4_000_000))\n"
    )
    argv = [sys.executable, "-c", script, str(server.ssh_config), str(here), str(there)]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    until(lambda: sum(path.stat().st_size for path in there.glob(".big*")) > 3_000_000)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    until(lambda: (there / PARTIAL_DIR / "big").exists())
    with closing(to(server)) as transport:
        assert transport.push(here, str(there)).bytes < len(data) - 1_500_000
    assert (there / "big").read_bytes() == data


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_runs_there_ends_with_the_command(
    serve: Callable[..., LoopbackSshd], tmp_path: Path, number: signal.Signals
) -> None:
    server = serve()
    script = (
        "import sys, pathlib\n"
        "from clusterkit.cli.edge import run\n"
        "from clusterkit.transport.factory import connect\n"
        "def command():\n"
        "    t = connect('node', ssh_config=pathlib.Path(sys.argv[1]))\n"
        '    told = \'echo $$ >"$1.new"; mv "$1.new" "$1"; sleep 1000\'\n'
        "    t.run(['sh', '-c', told, 'sh', sys.argv[2]])\n"
        "run(command)\n"
    )
    pid = tmp_path / "pid"
    process = subprocess.Popen([sys.executable, "-c", script, str(server.ssh_config), str(pid)])
    until(pid.exists)
    process.send_signal(number)
    assert process.wait(60) == 128 + number
    until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


class Interrupting:
    """A link that is slow to say that a command runs, and has the main thread interrupted meanwhile."""

    alive, why = True, None

    def __init__(self, link: Link, started: Path) -> None:
        self.link, self.started = link, started

    def open(self, command: bytes, screen: Screen | None = None) -> Channel:
        channel = self.link.open(command, screen)
        if not self.started.exists():
            until(self.started.exists)
            assert threading.main_thread().ident is not None
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.2)
        return channel

    def close(self) -> None:
        self.link.close()


@pytest.mark.slow
def test_what_was_just_started_ends_with_the_command(
    serve: Callable[..., LoopbackSshd], tmp_path: Path
) -> None:
    server, pid = serve(), tmp_path / "pid"
    link = connection(server)
    told = 'echo $$ >"$1.new"; mv "$1.new" "$1"; sleep 1000'
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with closing(SshTransport(Interrupting(link, pid), where="node")) as transport:
            with pytest.raises(KeyboardInterrupt):
                transport.run(["sh", "-c", told, "sh", str(pid)])
            until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_signal_just_after_the_start_ends_the_command(
    serve: Callable[..., LoopbackSshd], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, start = tmp_path / "pid", Session.start
    told = 'echo $$ >"$1.new"; mv "$1.new" "$1"; sleep 1000'

    def interrupted(session: Session) -> None:
        start(session)
        if session.argv[1:3] == ("-c", told):
            raise SystemExit

    monkeypatch.setattr(Session, "start", interrupted)
    with closing(connect("node", ssh_config=serve().ssh_config)) as transport:
        with pytest.raises(SystemExit):
            transport.run(["sh", "-c", told, "sh", str(pid)])
        until(pid.exists)
        until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


# full disks ----------------------------------------------------------------------------------


@pytest.fixture
@needing("a small disk")
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with full_disk.small_disk(tmp_path / "small", kib=2048) as folder:
        yield folder


@pytest.mark.slow
def test_a_full_disk_over_there(ssh: Transport, small_disk: Path, here: Path) -> None:
    random_file(here / "big", 5)
    with pytest.raises(TransportError, match=r"^no space left on device on node: ") as caught:
        ssh.push(here, str(small_disk))
    assert caught.value.hint
    assert "free space on node" in caught.value.hint
    with pytest.raises(TransportError, match=r"^no space left on device on node: cannot write "):
        ssh.write(str(small_disk / "note"), bytes(5_000_000))
    assert not (small_disk / "note").exists()


def test_a_full_disk_here(ssh: Transport, small_disk: Path, there: Path) -> None:
    random_file(there / "big", 5)
    with pytest.raises(TransportError, match=r"^no space left on device on this machine: "):
        ssh.pull(str(there), small_disk)
