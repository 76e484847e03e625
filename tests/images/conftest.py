"""Images made up of random bytes, a real sshd, and the store on its other side."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.images.image import Image, local_image
from clusterkit.runs.ledger import Ledger
from clusterkit.site import Site, open_site
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.images.uploads import HEADER, Store
from tests.needs import needing
from tests.transport.tools import all_but_rsync


@pytest.fixture(scope="session")
@needing("sshd")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path_factory.mktemp("sshd") / "node")) as server:
        yield server


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "laptop" / "ledger") as opened:
        yield opened


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every program of this machine but rsync."""
    return all_but_rsync(tmp_path_factory.mktemp("tools"))


@pytest.fixture(
    params=[
        "ssh",
        pytest.param("local", marks=pytest.mark.exhaustive),
        pytest.param("ssh without rsync", marks=pytest.mark.exhaustive),
    ]
)
@needing("sshd", unless=lambda road: road == "local")
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    root = f"{tmp_path}/the root"
    cluster = Cluster(name="local", kind="local", root=root, container="none")
    if request.param == "ssh without rsync":
        monkeypatch.setenv("PATH", str(request.getfixturevalue("tools")))
    if request.param != "local":
        server = request.getfixturevalue("sshd")
        cluster = Cluster(name="far", host=server.alias, ssh_config=server.ssh_config, root=root)
    with open_site(cluster) as opened:
        yield opened


@pytest.fixture
def store(site: Site, tmp_path: Path, ledger: Ledger) -> Store:
    return Store(site, tmp_path / "laptop" / "chunks", ledger)


@pytest.fixture
def sif(tmp_path: Path) -> Callable[..., Path]:
    """Writes an image of so many bytes; the same seed gives the same bytes."""

    def write(size: int, seed: int = 1, name: str = "my image.sif") -> Path:
        path = tmp_path / name
        path.write_bytes(HEADER + random.Random(seed).randbytes(size - len(HEADER)))
        return path

    return write


@pytest.fixture
def image(sif: Callable[..., Path], ledger: Ledger) -> tuple[Path, Image]:
    path = sif(1_000_000)
    return path, local_image(path, ledger)
