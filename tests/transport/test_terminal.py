"""A command on this process's own terminal: keys, sizes and exit status pass through each transport."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Iterator

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.base import Transport
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.runtime import runtime_folder
from tests.transport.test_contract import gone, running
from tests.waiting import until

pytestmark = pytest.mark.slow

LONG = f"4713.{os.getpid()}"
"""How long the commands sleep that a test looks for among all processes; no other process's do."""

CLIENT = """
import sys
from pathlib import Path
from clusterkit.transport import factory, local
host, config, keep, *argv = sys.argv[1:]
ssh = {"ssh_config": Path(config), "keep": int(keep) if keep else None}
far = factory.connect(host, **ssh) if host else local.LocalTransport()
status = far.attach(argv, terminal=True)
far.close()
print(f"status {status}")
"""


class Typist:
    """Somebody at a terminal of 100 columns and 30 rows in which `attach` runs."""

    def __init__(self, way: str, sshd: LoopbackSshd, *argv: str) -> None:
        host, keep = ("", "") if way == "local" else (sshd.alias, "600" if way == "openssh" else "")
        command = [sys.executable, "-c", CLIENT, host, str(sshd.ssh_config), keep, *argv]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, {**os.environ, "TERM": "xterm-256color"})
        self.resize(100, 30)
        self.seen = ""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def reads(self, text: str, seconds: float = 120.0) -> None:
        """Wait until something is on the screen."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if select.select([self.terminal], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.terminal, 4096).decode()
                except OSError:
                    assert text in self.seen, self.seen

    def types(self, keys: str) -> None:
        self.seen = ""
        os.write(self.terminal, keys.encode())

    def ends(self) -> int:
        """Returns the exit status, once the command has ended."""
        status = os.waitpid(self.pid, 0)[1]
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def leaves(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)


@pytest.fixture(params=["local", "ssh", "openssh"])
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with runtime_folder():
        yield request.param


SHELL = ["sh", "-c", "stty size; echo TERM=$TERM; PS1='ready$ ' exec bash --norc"]


def test_a_shell_has_keys_sizes_interrupts_and_a_status(way: str, sshd: LoopbackSshd) -> None:
    person = Typist(way, sshd, *SHELL)
    try:
        person.reads("30 100")
        person.reads("TERM=xterm-256color")
        person.reads("ready$ ")
        person.types("echo $((6 * 7))\n")
        person.reads("42")
        person.resize(77, 22)
        person.types("until stty size | grep '22 77'; do sleep 0.1; done\n")
        person.reads("22 77\r")  # not its echo
        person.types("sleep 4711; echo $((7 * 8)); test -t 0 -a -t 1 -a -t 2 && echo all; tty\n")
        time.sleep(0.5)
        person.types("\x03")
        person.reads("ready$ ")
        person.types("sleep 47 & exit 7\n")
        person.reads("status 7")
    finally:
        person.leaves()


def test_a_person_who_is_gone_takes_the_command_along(way: str, sshd: LoopbackSshd) -> None:
    person = Typist(way, sshd, "sh", "-c", f"echo ready; sleep {LONG}")
    try:
        person.reads("ready")
        assert running(f"sleep {LONG}")
    finally:
        person.leaves()
    assert gone(f"sleep {LONG}")


def test_the_terminal_is_as_before_after_a_polite_end(sshd: LoopbackSshd) -> None:
    person = Typist("ssh", sshd, "sh", "-c", f"echo ready; sleep {LONG}")
    try:
        before = termios.tcgetattr(person.terminal)
        person.reads("ready")
        assert termios.tcgetattr(person.terminal)[3] & termios.ECHO == 0
        os.kill(person.pid, signal.SIGTERM)
        until(lambda: termios.tcgetattr(person.terminal) == before)
    finally:
        person.leaves()
    assert gone(f"sleep {LONG}")


@pytest.mark.parametrize("way", ["ssh", "openssh"], indirect=True)
def test_a_start_up_file_that_prints_without_end_is_an_error(way: str, sshd: LoopbackSshd) -> None:
    noise = sshd.home / ".bashrc"
    noise.write_text("[ ! -t 1 ] || yes quota\n")
    try:
        person = Typist(way, sshd, *SHELL)
        try:
            person.reads("its shell prints without end")
            person.reads("quota / quota")
            assert person.ends() == 1
        finally:
            person.leaves()
    finally:
        noise.unlink()


def test_without_a_terminal_the_streams_stay_apart(
    transport: Transport, capfd: pytest.CaptureFixture[str]
) -> None:
    script = "echo out; echo err >&2; cat; exit 3"
    assert transport.attach(["sh", "-c", script], terminal=False) == 3
    assert capfd.readouterr() == ("out\n", "err\n")


def test_input_is_held_open_as_long_as_anyone_reads(transport: Transport) -> None:
    script = "timeout 2 cat; echo $?"
    assert b"".join(transport.stream(["sh", "-c", script], hold_input=True)) == b"124\n"
    assert b"".join(transport.stream(["sh", "-c", script])) == b"0\n"


def test_no_terminal_is_said(transport: Transport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: False)
    with pytest.raises(TransportError, match="this needs a terminal"):
        transport.attach(["sh"], terminal=True)
