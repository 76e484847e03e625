"""Nothing fails because of a kept login: stale, foreign, dead or forbidden, a command logs in by itself."""

from __future__ import annotations

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport import factory
from clusterkit.transport.openssh.kept import NotPrivateError, private_folder, socket_paths
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.relay import Relay
from tests.transport.answers import Answers
from tests.transport.openssh.commands import says, to
from tests.transport.runtime import masters


@pytest.mark.slow
def test_a_host_that_means_something_else_now(server: LoopbackSshd) -> None:
    assert says(to(server, keep=60)) == "here\n"
    server.ssh_config.write_text(server.host_block(lines=["HostName localhost", "HostKeyAlias alias"]))
    name = f"alias {server.known_hosts.read_text().split(' ', 1)[1]}"
    server.known_hosts.write_text(name)
    assert says(to(server)) == "here\n"
    assert server.accepted_logins() == 2


@pytest.mark.slow
def test_a_link_that_is_dead_and_does_not_know_it(
    server: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a laptop has slept."""
    with closing(Relay(server.port)) as link:
        server.ssh_config.write_text(link.host_block(server, "ConnectTimeout 1"))
        assert says(to(server, keep=60)) == "here\n"
        link.silent.set()
        os.utime(socket_paths()[0], (0, 0))  # a day ago
        before = time.monotonic()
        monkeypatch.setattr(factory, "PAUSES", (0.0,))
        with pytest.raises(TransportError, match="does not answer as an SSH server"):
            to(server)
        assert time.monotonic() - before < 30


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["mode", "file", "link"])
def test_a_folder_that_is_not_private_is_not_used(fault: str, server: LoopbackSshd, folder: Path) -> None:
    place = folder / "clusterkit"
    if fault == "mode":
        place.mkdir()
        place.chmod(0o755)
    elif fault == "link":
        (folder / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(folder / "elsewhere")
    else:
        place.write_text("in the way")
    ask = Answers()
    with pytest.raises((NotPrivateError, OSError)):
        private_folder(create=True)
    assert says(to(server, keep=60, ask=ask)) == "here\n"
    assert "The login to node is not kept: " in ask.questions[0].instructions
    assert masters(folder) == []
