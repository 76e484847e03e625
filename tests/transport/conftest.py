"""One real sshd for the whole folder, and both transports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.transport.base import Transport
from clusterkit.transport.factory import connect
from tests.doubles.loopback_sshd import LoopbackSshd, find_sshd


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed")
    with closing(LoopbackSshd(tmp_path_factory.mktemp("sshd") / "node")) as server:
        yield server


@pytest.fixture(scope="session")
def ssh(sshd: LoopbackSshd) -> Iterator[Transport]:
    with closing(connect(sshd.alias, ssh_config=sshd.ssh_config)) as transport:
        yield transport


@pytest.fixture(params=["local", "ssh"])
def transport(request: pytest.FixtureRequest) -> Iterator[Transport]:
    if request.param == "ssh":
        yield request.getfixturevalue("ssh")
    else:
        with closing(connect(None)) as local:
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
