"""Who may use a kept login, and that no secret lies about."""

from __future__ import annotations

import os
import shutil
import socket
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.transport.factory import connect
from clusterkit.transport.openssh.kept import KeptFor, kept_for, note_file, socket_paths
from clusterkit.transport.openssh.kept import folder as folder_of
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.openssh.commands import says, to
from tests.transport.runtime import end_masters, masters

pytestmark = pytest.mark.slow


def test_modes_and_no_secret_anywhere(server: LoopbackSshd, folder: Path) -> None:
    assert says(to(server, keep=60)) == "here\n"
    (path,) = socket_paths()
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert {one.name for one in path.parent.iterdir()} == {path.name, f"{path.name}.lock"}
    assert note_file(path).read_text() == "node\n60\n"
    assert kept_for(path) == KeptFor("node", 60)


@pytest.mark.needs("root")
def test_a_socket_of_another_user_is_not_used(server: LoopbackSshd, folder: Path) -> None:
    """Who could put it there could read all that is sent to it."""
    path = folder / "theirs"
    server.ssh_config.write_text(server.host_block(lines=[f"ControlPath {path}"]))
    folder.chmod(0o777)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.bind(str(path))
            stranger.listen()
            os.write(write, b"!")
            stranger.settimeout(10)
            guest, _ = stranger.accept()
            guest.settimeout(10)
            os._exit(1 if guest.recv(1) else 0)
    assert os.read(read, 1) == b"!"
    assert says(to(server)) == "here\n"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert server.accepted_logins() == 1


def test_a_path_too_long_for_a_socket_is_replaced(server: LoopbackSshd, folder: Path) -> None:
    long = {"XDG_RUNTIME_DIR": f"/tmp/{'x' * 100}"}
    assert folder_of(long) == Path(f"/tmp/clusterkit-{os.getuid()}")


@pytest.mark.parametrize("keep", [None, 60])
def test_the_longest_path_that_is_taken_fits(
    keep: int | None, server: LoopbackSshd, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = folder
    while folder_of({"XDG_RUNTIME_DIR": f"{longest}x"}).is_relative_to(folder.parent / f"{longest.name}x"):
        longest = Path(f"{longest}x")
    longest.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(longest))
    with closing(connect("node", ssh_config=server.ssh_config, wanted="openssh", keep=keep)) as far:
        assert far.run(["echo", "here"]).text == "here\n"
        assert len(masters(longest)) == 1
    end_masters(longest)
    shutil.rmtree(longest)
