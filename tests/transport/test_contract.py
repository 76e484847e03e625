"""What every transport promises (clusterkit/transport/base.py), asked of each of them."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.base import MissingFileError, Transport
from tests.processes import processes
from tests.transport.trees import ODD_NAMES, mode
from tests.waiting import until

SECONDS = f"4171.{os.getpid()}"
"""How long the commands sleep that a test looks for among all processes; no other process's do."""


def running(needle: str) -> bool:
    return any(needle in process.arguments for process in processes())


def gone(needle: str, seconds: float = 60.0) -> bool:
    """Whether no process has `needle` in its arguments, soon."""
    deadline = time.monotonic() + seconds
    while running(needle):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# run -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_arguments_arrive_to_the_letter(transport: Transport) -> None:
    words = [*ODD_NAMES, "", " ", "!history", "%s", "\\", "a'b\"c", "~", "\x01\x7f", "{a,b}", "end"]
    assert transport.run(["printf", r"%s\0", *words]).stdout == "".join(f"{one}\0" for one in words).encode()


def test_bytes_that_are_no_unicode_arrive_too(transport: Transport) -> None:
    assert (
        transport.run(["printf", "%s", b"\xff\xfe".decode("utf-8", "surrogateescape")]).stdout == b"\xff\xfe"
    )


@pytest.mark.slow
@pytest.mark.parametrize("argv", [[], ["printf", "a\0b"]])
def test_an_impossible_command_is_a_programming_error(transport: Transport, argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"empty|NUL|null"):
        transport.run(argv)


def test_output_and_errors_are_kept_apart(transport: Transport) -> None:
    done = transport.run(["sh", "-c", "echo out; echo err >&2"])
    assert (done.text, done.error_text, done.returncode) == ("out\n", "err\n", 0)


def test_stdin_is_delivered_and_ended(transport: Transport) -> None:
    data = os.urandom(300_000)
    assert transport.run(["cat"], stdin=data).stdout == data
    assert transport.run(["cat"]).stdout == b""


@pytest.mark.slow
def test_much_on_all_three_streams_at_once(transport: Transport) -> None:
    script = "head -c 3000000 /dev/zero >&2 & head -c 3000000 /dev/zero; wait; cat"
    data = os.urandom(5_000_000)
    done = transport.run(["sh", "-c", script], stdin=data)
    assert done.stdout == bytes(3_000_000) + data
    assert done.stderr == bytes(3_000_000)


def test_a_command_that_does_not_read_its_input(transport: Transport) -> None:
    assert transport.run(["true"], stdin=bytes(5_000_000)).returncode == 0


def test_a_failure_names_command_machine_and_last_words(transport: Transport) -> None:
    with pytest.raises(TransportError) as caught:
        transport.run(["sh", "-c", "echo early >&2; echo 'disk on fire' >&2; exit 3"])
    assert caught.value.cause == f"sh failed with status 3 on {transport.where}: disk on fire"


def test_unchecked_the_status_is_returned(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "exit 42"], check=False).returncode == 42


@pytest.mark.parametrize("transport", ["local", "ssh"], indirect=True)
def test_a_signal_is_a_negative_status(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "kill -KILL $$"], check=False).returncode == -9


def test_a_signal_openssh_does_not_tell(openssh: Transport) -> None:
    with pytest.raises(TransportError, match=r"^sh was interrupted on node: by a signal"):
        openssh.run(["sh", "-c", "kill -KILL $$"], check=False)


def test_a_missing_program(transport: Transport) -> None:
    assert transport.run(["no-such-program"], check=False).returncode == 127
    with pytest.raises(
        TransportError, match=f"(?m)^no-such-program: command not found on {transport.where}$"
    ):
        transport.run(["no-such-program"])


@pytest.mark.parametrize(
    "script",
    [
        f"sleep {SECONDS} & sleep {SECONDS}",
        pytest.param(f"trap '' TERM; while :; do sleep 0.1; : {SECONDS}; done", marks=pytest.mark.slow),
    ],
    ids=["group", "ignores the polite signal"],
)
def test_a_command_that_takes_too_long_is_ended_with_all_it_started(
    transport: Transport, script: str
) -> None:
    with pytest.raises(TransportError, match=r"did not finish within 0\.3 s"):
        transport.run(["sh", "-c", script], timeout=0.3)
    assert gone(SECONDS)


@pytest.mark.slow
def test_many_threads_at_once(transport: Transport) -> None:
    def echo(number: int) -> str:
        return transport.run(["sh", "-c", 'cat; echo "$1"', "sh", str(number)], stdin=b"n=").text

    with ThreadPoolExecutor(20) as pool:
        assert list(pool.map(echo, range(40))) == [f"n={number}\n" for number in range(40)]


# stream --------------------------------------------------------------------------------------


def test_stream_yields_as_it_comes(transport: Transport, there: Path) -> None:
    gate = there / "gate"
    script = 'echo first; while [ ! -e "$1" ]; do sleep 0.02; done; echo second'
    lines = transport.stream(["sh", "-c", script, "sh", str(gate)])
    assert next(lines) == b"first\n"  # the command still runs: its gate is closed
    gate.touch()
    assert b"".join(lines) == b"second\n"


def test_closing_a_stream_ends_the_command(transport: Transport) -> None:
    stream = transport.stream(["sh", "-c", f"echo on; sleep {SECONDS} & sleep {SECONDS}"])
    assert next(stream) == b"on\n"
    stream.close()  # type: ignore[attr-defined]
    assert gone(f"sleep {SECONDS}")


def test_a_conversation_goes_both_ways(transport: Transport) -> None:
    said: list[bytes] = []
    script = 'read -r one; echo "<$one>"; echo trouble >&2; read -r two; echo "<$two>"; cat; exit 7'
    with transport.talk(["sh", "-c", script], on_error=said.append) as talking:
        output = talking.output()
        talking.send(b"a\n")
        assert next(output) == b"<a>\n"
        talking.send(b"b\n")
        assert next(output) == b"<b>\n"
        until(lambda: b"".join(said) == b"trouble\n")  # it comes beside the output
    with transport.talk(["sh", "-c", "exit 7"], on_error=said.append) as talking:
        assert b"".join(talking.output()) == b""
        assert talking.wait() == 7


def test_the_end_of_a_conversation_ends_the_command(transport: Transport) -> None:
    with transport.talk(["sh", "-c", f"cat; : {SECONDS}"], on_error=print) as talking:
        talking.send(b"x")
        assert next(talking.output()) == b"x"
    assert gone(SECONDS)


@pytest.mark.slow
def test_a_failed_stream_says_so(transport: Transport) -> None:
    with pytest.raises(TransportError, match=r"sh failed with status 5 on .*: no more"):
        list(transport.stream(["sh", "-c", "echo some; echo 'no more' >&2; exit 5"]))
    with pytest.raises(TransportError, match="command not found"):
        list(transport.stream(["no-such-program"]))


# read and write ------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_written_is_read(transport: Transport, there: Path) -> None:
    for name in ODD_NAMES:
        (there / "folder").mkdir()
        path = there / "folder" / name
        transport.write(str(path), b"first")
        transport.write(str(path), b"\0\xffsecond\n")
        assert transport.read(str(path)) == path.read_bytes() == b"\0\xffsecond\n"
        assert [one.name for one in path.parent.iterdir()] == [name]
        assert mode(path) == 0o600
        path.unlink()
        path.parent.rmdir()


def test_write_makes_private_files_in_private_parents(transport: Transport, there: Path) -> None:
    path = there / "a" / "b" / "run.sh"
    transport.write(str(path), b"")
    assert (mode(path), mode(path.parent), mode(path.parent.parent)) == (0o600, 0o700, 0o700)


@pytest.mark.slow
def test_readers_never_see_half_a_write(transport: Transport, there: Path) -> None:
    path = there / "file"
    versions = {bytes([letter]) * 400_000 for letter in b"ab"}
    path.write_bytes(min(versions))
    stop, seen = threading.Event(), set()

    def look() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    looker = threading.Thread(target=look)
    looker.start()
    for _ in range(5):
        for version in versions:
            transport.write(str(path), version)
    stop.set()
    looker.join()
    assert seen <= versions


def test_a_missing_file_is_told_from_an_unreadable_one(transport: Transport, there: Path) -> None:
    with pytest.raises(MissingFileError, match=rf"absent does not exist on {transport.where}$"):
        transport.read(str(there / "absent"))
    with pytest.raises(TransportError, match=r"cannot read .*: Is a directory") as caught:
        transport.read(str(there))
    assert not isinstance(caught.value, MissingFileError)


@pytest.mark.needs("an ordinary user")
def test_permission_denied_is_said(transport: Transport, there: Path) -> None:
    (there / "secret").touch(mode=0o000)
    with pytest.raises(TransportError, match="Permission denied"):
        transport.read(str(there / "secret"))
    there.chmod(0o500)
    with pytest.raises(TransportError, match="Permission denied"):
        transport.write(str(there / "new"), b"")


def test_a_folder_is_not_overwritten(transport: Transport, there: Path) -> None:
    with pytest.raises(TransportError, match=r"cannot write .*: Is a directory"):
        transport.write(str(there), b"")
    assert list(there.iterdir()) == []


def test_close_twice(sshd: object, request: pytest.FixtureRequest) -> None:
    from clusterkit.transport.factory import connect
    from clusterkit.transport.local import LocalTransport
    from tests.doubles.loopback_sshd import LoopbackSshd

    assert isinstance(sshd, LoopbackSshd)
    for one in (LocalTransport(), connect(sshd.alias, ssh_config=sshd.ssh_config)):
        one.close()
        one.close()
