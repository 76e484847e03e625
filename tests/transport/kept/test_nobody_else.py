"""Who may use a kept login, and that no secret lies about."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.transport.kept import messages
from clusterkit.transport.kept.folder import socket_paths
from tests.doubles.code_sshd import CodeSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import Answers
from tests.transport.kept.commands import says, to
from tests.transport.runtime import keepers

pytestmark = pytest.mark.slow


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
