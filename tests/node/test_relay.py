"""The relay: frames, streams that do not hold up each other, and whose ports it connects to."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.node import relay

FILE = Path(relay.__file__)


@given(st.binary(), st.integers(0, 10**6), st.lists(st.integers(1, 9), max_size=20))
def test_a_frame_is_one_line_whatever_it_holds(data: bytes, number: int, cuts: list[int]) -> None:
    line = relay.frame(b"D", number, data)
    assert line.count(b"\n") == 1
    reader, rest, frames = relay.FrameReader(), line * 2, list[tuple[bytes, int, bytes]]()
    for cut in cuts:
        frames += reader.feed(rest[:cut])
        rest = rest[cut:]
    frames += reader.feed(rest)
    assert frames == [(b"D", number, data)] * 2


STRAY = [
    b"",
    b"Welcome to node7",
    b"D1",
    b"D x",
    b"D-1 x",
    b"D+1 x",
    b"D1_0 x",
    b"D\xc2\xb2 x",
    b"D" + b"9" * 5000 + b" x",
    b"Q1 x",
    b" 1 x",
    b"\x1b[2J",
    bytes(range(256)),
    b"D1 " + bytes(1 << 17),
]


@pytest.mark.parametrize("line", STRAY, ids=repr)
def test_a_line_that_is_no_frame(line: bytes) -> None:
    with pytest.raises(relay.StrayLineError) as raised:
        list(relay.FrameReader().feed(relay.frame(b"D", 1, b"before") + line + b"\n"))
    assert line.startswith(raised.value.said) or raised.value.said == line.partition(b"\n")[0]


def test_a_line_without_an_end_is_not_kept() -> None:
    reader = relay.FrameReader()
    assert not any(frame for _ in range(64) for frame in reader.feed(bytes(1 << 10)))
    with pytest.raises(relay.StrayLineError):
        list(reader.feed(bytes(1 << 10)))


WHOLE = bytes(relay.WINDOW)
OUT_OF_TURN: dict[str, list[tuple[bytes, int, bytes]]] = {
    "beyond the window": [(b"D", 1, WHOLE), (b"D", 1, b"x")],
    "without data": [(b"D", 1, b"")],
    "data after the end": [(b"E", 1, b""), (b"D", 1, b"x")],
    "a second end": [(b"E", 1, b""), (b"E", 1, b"")],
    "refused after data": [(b"D", 1, b"x"), (b"X", 1, b"no")],
    "of no stream": [(b"D", 2, b"x")],
    "refusing no stream": [(b"X", 2, b"no")],
    "opening a stream": [(relay.OPEN, 1, b"80")],
    "hanging up twice": [(b"G", 1, b""), (b"G", 1, b"")],
    "taking what was not sent": [(b"T", 1, b"1")],
    "taking less than nothing": [(b"T", 1, b"-1")],
    "taking no number": [(b"T", 1, b"9" * 5000)],
}


@pytest.mark.parametrize("frames", OUT_OF_TURN.values(), ids=OUT_OF_TURN)
def test_a_frame_out_of_turn(frames: list[tuple[bytes, int, bytes]]) -> None:
    side, connected = relay.Relay(lambda _: None), threading.Event()
    ours, theirs = socket.socketpair()

    def connect() -> socket.socket:
        connected.wait()
        return theirs

    with ours:
        side.open(1, connect)  # not connected yet: nothing that comes is passed on
        for frame in frames[:-1]:
            side.take(*frame)
        with pytest.raises(relay.StrayLineError) as raised:
            side.take(*frames[-1])
        assert raised.value.said == relay.frame(*frames[-1])
        side.close()
        connected.set()
        while ours.recv(1 << 16):
            pass


def test_a_stream_that_was_refused_takes_nothing() -> None:
    side, refused = relay.Relay(lambda _: None), list[bytes]()
    ours, theirs = socket.socketpair()
    with ours:
        side.open(1, lambda: theirs, refused.append)
        for kind in (b"X", b"X", b"D", b"E", b"T"):
            side.take(kind, 1, b"9" * 5000)
        assert ours.recv(100) == b""
    assert refused == [b"9" * 5000]


class Node:
    """A relay as on a node, and this side's."""

    def __init__(self, *arguments: str) -> None:
        argv = [sys.executable, "-I", "-S", "-c", FILE.read_text(), "mark-", *arguments]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdin is not None
        self.input = self.process.stdin
        self.relay = relay.Relay(self.send)
        self.refused: list[bytes] = []
        self.ready = threading.Event()
        threading.Thread(target=self.listen, daemon=True).start()
        assert self.ready.wait(30)

    def send(self, data: bytes) -> None:
        if self.input.closed:
            raise BrokenPipeError
        self.input.write(data)
        self.input.flush()

    def listen(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"mark-%d\n" % self.process.pid
        self.ready.set()
        for line in self.process.stdout:
            kind, number, data = relay.read_frame(line.rstrip(b"\n"))
            self.relay.take(kind, number, data)

    def connect(self, number: int, wanted: bytes = b"") -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(30)

        def opened() -> socket.socket:
            self.relay.write(relay.frame(relay.OPEN, number, wanted))
            return theirs

        self.relay.open(number, opened, self.refused.append)
        return ours

    def close(self) -> None:
        self.input.close()
        assert self.process.wait(30) == 0


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)
        yield listening


def port_of(server: socket.socket) -> bytes:
    return b"%d" % server.getsockname()[1]


def test_a_stream_that_nobody_reads_holds_up_no_other(server: socket.socket) -> None:
    node = Node("ports")
    with node.connect(1, port_of(server)) as stuck, server.accept()[0] as flood:
        flood.setblocking(False)
        sent = 0
        try:
            while sent < 64 * relay.WINDOW:  # `stuck` is not read: it must not be taken without bounds
                sent += flood.send(bytes(1 << 16))
                threading.Event().wait(0.001)
        except BlockingIOError:
            pass
        assert sent < 64 * relay.WINDOW
        with node.connect(2, port_of(server)) as near, server.accept()[0] as far:
            body = os.urandom(3 << 20)
            threading.Thread(target=far.sendall, args=(body,), daemon=True).start()
            came = b""
            while len(came) < len(body):
                came += near.recv(1 << 16)
            assert came == body
        left = 0
        while left < sent:
            left += len(stuck.recv(1 << 16))
        assert left == sent
    node.close()


def test_each_way_ends_by_itself(server: socket.socket) -> None:
    node = Node("ports")
    with node.connect(1, port_of(server)) as near, server.accept()[0] as far:
        near.sendall(b"question")
        near.shutdown(socket.SHUT_WR)
        assert far.recv(100) == b"question"
        assert far.recv(100) == b""
        far.sendall(b"answer")
        far.close()
        assert near.recv(100) == b"answer"
        assert near.recv(100) == b""
    node.close()


def test_a_server_that_never_reads_learns_that_its_client_is_gone(server: socket.socket) -> None:
    node = Node("ports")
    near = node.connect(1, port_of(server))
    with server.accept()[0] as far:
        near.close()
        assert far.recv(1) == b""
        far.settimeout(30)
        with pytest.raises(ConnectionError):
            far.sendall(bytes(64 * relay.WINDOW))
    node.close()


def test_a_port_on_which_nobody_listens(server: socket.socket) -> None:
    port = port_of(server)
    server.close()
    node = Node("ports")
    with node.connect(1, port) as near:
        assert near.recv(100) == b""
    assert node.refused == [b"nothing listens on port " + port]
    node.close()


def test_a_process_for_each_stream() -> None:
    node = Node("program", "sh", "-c", 'read -r word; echo "$word $$"')
    answers = set()
    for number in (1, 2):
        with node.connect(number) as near:
            near.sendall(b"hello\n")
            answers.add(near.makefile("rb").read())
    assert len(answers) == 2
    assert all(one.startswith(b"hello ") for one in answers)
    node.close()
    node = Node("program", "/nowhere/sshd")
    with node.connect(1) as near:
        assert near.recv(100) == b""
    assert node.refused == [b"No such file or directory"]
    node.close()


def test_who_listens_is_read_from_the_kernels_table(server: socket.socket) -> None:
    table = Path("/proc/net/tcp").read_text()
    port = server.getsockname()[1]
    assert relay.listener_of(port, table) == os.getuid()
    assert relay.listener_of(0, table) is None


@pytest.mark.needs("root")
def test_a_port_of_another_user_is_refused(server: socket.socket) -> None:
    argv = ["setpriv", "--reuid=41002", "--clear-groups", sys.executable, "-S", "-c"]
    text = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); "
    text += "print(s.getsockname()[1], flush=True); time.sleep(600)"
    stranger = subprocess.Popen([*argv, text], stdout=subprocess.PIPE)
    assert stranger.stdout is not None
    port = int(stranger.stdout.readline())
    with pytest.raises(PermissionError, match=f"port {port} is another user's"):
        relay.connect_to(port)
    stranger.kill()
    stranger.communicate()
