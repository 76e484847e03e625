"""One real sshd for the whole folder, and every transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from clusterkit.transport.base import Transport
from clusterkit.transport.factory import connect
from clusterkit.transport.local import LocalTransport
from clusterkit.transport.openssh.kept import socket_paths
from tests.doubles.dialog_server import DialogServer
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.transport.runtime import runtime_folder
from tests.transport.tools import all_but_rsync


@pytest.fixture(scope="session")
@needing("sshd")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path_factory.mktemp("sshd") / "node")) as server:
        yield server


@pytest.fixture(scope="session")
def ssh(sshd: LoopbackSshd) -> Iterator[Transport]:
    with closing(connect(sshd.alias, ssh_config=sshd.ssh_config, wanted="paramiko")) as transport:
        yield transport


@pytest.fixture(scope="session")
def openssh(sshd: LoopbackSshd) -> Iterator[Transport]:
    """A connection that an OpenSSH master holds."""
    with (
        runtime_folder() as environment,
        closing(connect(sshd.alias, ssh_config=sshd.ssh_config, keep=600)) as transport,
    ):
        assert len(socket_paths()) == 1
        environment.undo()  # nobody else shall find it
        yield transport


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program of this machine but rsync."""
    return all_but_rsync(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., DialogServer]]:
    """Starts a server that wants some factors."""
    with ExitStack() as stack:
        yield lambda *factors, **more: stack.enter_context(
            closing(DialogServer(tmp_path / "server", factors, **more))
        )


@pytest.fixture(params=["local", "ssh", "openssh"])
@needing("sshd", unless=lambda road: road == "local")
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    if request.param != "local":
        yield request.getfixturevalue(request.param)
    else:
        with closing(LocalTransport()) as local:
            yield local


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """A folder that plays the far side; both transports reach it by the same path."""
    folder = tmp_path / "there"
    folder.mkdir()
    return folder


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder on this side."""
    folder = tmp_path / "here"
    folder.mkdir()
    return folder
