"""The image store: hashed once, sent once, verified, resumed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterkit.config.models import Cluster
from clusterkit.errors import ImageError
from clusterkit.images import Image, local_image, present, publish, send
from clusterkit.ledger import Ledger
from clusterkit.site import Layout, Site, open_site


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "ledger") as opened:
        yield opened


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with open_site(Cluster(name="local", kind="local", root=f"{tmp_path}/root", container="none")) as opened:
        yield opened


@pytest.fixture
def sif(tmp_path: Path) -> Path:
    path = tmp_path / "my image.sif"
    path.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + bytes(range(256)) * 4000)
    return path


def upload(site: Site, path: Path, image: Image) -> None:
    send(site, path, image)
    publish(site, image)


def test_hashing_is_done_once(sif: Path, ledger: Ledger) -> None:
    seen: list[int] = []
    first = local_image(sif, ledger, hashed=seen.append)
    assert seen[-1] == first.bytes == sif.stat().st_size
    seen.clear()
    assert local_image(sif, ledger, hashed=seen.append) == first
    assert seen == []


def test_what_is_no_sif_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    tar = tmp_path / "image.tar"
    tar.write_bytes(b"\0" * 1000)
    with pytest.raises(ImageError, match="not a SIF image"):
        local_image(tar, ledger)
    with pytest.raises(ImageError, match="no such image"):
        local_image(tmp_path / "absent.sif", ledger)


def test_upload_publishes_under_the_digest(sif: Path, ledger: Ledger, site: Site) -> None:
    image = local_image(sif, ledger)
    assert not present(site, image)
    upload(site, sif, image)
    assert present(site, image)
    published = Path(image.path(site.layout.images))
    assert published.read_bytes() == sif.read_bytes()
    upload(site, sif, image)
    assert [p.name for p in Path(site.layout.images).iterdir()] == [published.name]


def test_a_file_that_changes_under_the_upload_is_not_published(sif: Path, ledger: Ledger, site: Site) -> None:
    image = local_image(sif, ledger)
    with sif.open("r+b") as file:
        file.seek(100)
        file.write(b"changed")
    with pytest.raises(ImageError, match="does not match"):
        upload(site, sif, image)
    assert list(Path(site.layout.images).iterdir()) == []


def test_a_damaged_image_on_the_cluster_is_replaced(sif: Path, ledger: Ledger, site: Site) -> None:
    image = local_image(sif, ledger)
    upload(site, sif, image)
    published = Path(image.path(site.layout.images))
    published.chmod(0o600)
    published.write_bytes(b"torn")
    assert not present(site, image)
    upload(site, sif, image)
    assert published.read_bytes() == sif.read_bytes()


def test_a_full_disk_is_said_before_anything_is_sent(sif: Path, ledger: Ledger, site: Site) -> None:
    image = local_image(sif, ledger)
    full = Site(site.cluster, site.transport, site.layout, free_bytes=1000)
    with pytest.raises(ImageError, match="no space left"):
        upload(full, sif, image)
    assert list(Path(site.layout.images).iterdir()) == []


def test_paths() -> None:
    assert Image("ab", 1).path(Layout("/r", "/s").images) == "/r/images/sha256-ab.sif"
