"""The digest of an image on this machine."""

from pathlib import Path

import pytest

from clusterkit.errors import ImageError
from clusterkit.images.image import Image, local_image
from clusterkit.runs.ledger import Ledger
from clusterkit.site import Layout


def test_hashing_is_done_once(image: tuple[Path, Image], tmp_path: Path) -> None:
    path, first = image
    seen: list[int] = []
    with Ledger(tmp_path / "another") as ledger:
        assert local_image(path, ledger, hashed=seen.append) == first
        assert seen[-1] == first.bytes == path.stat().st_size
        seen.clear()
        assert local_image(path, ledger, hashed=seen.append) == first
        assert seen == []


def test_what_is_no_sif_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    tar = tmp_path / "image.tar"
    tar.write_bytes(b"\0" * 1000)
    with pytest.raises(ImageError, match="not a SIF image"):
        local_image(tar, ledger)
    with pytest.raises(ImageError, match="no such image"):
        local_image(tmp_path / "absent.sif", ledger)


def test_a_name_that_reads_otherwise_than_it_is_is_refused(tmp_path: Path, ledger: Ledger) -> None:
    image = tmp_path / "train\u202efis.sif"
    image.write_bytes(b"\0" * 32 + b"SIF_MAGIC")
    with pytest.raises(ImageError, match=r"'train\\u202efis.sif' contains characters that cannot be shown"):
        local_image(image, ledger)


def test_each_runtime_takes_its_own_format(tmp_path: Path, ledger: Ledger) -> None:
    squashfs, sif = tmp_path / "image.sqsh", tmp_path / "image.sif"
    squashfs.write_bytes(b"hsqs" + b"\0" * 100)
    sif.write_bytes(b"\0" * 32 + b"SIF_MAGIC")
    assert local_image(squashfs, ledger, runtime="pyxis").bytes == 104
    with pytest.raises(ImageError, match="not a SIF image"):
        local_image(squashfs, ledger)
    with pytest.raises(ImageError, match="not a squashfs image"):
        local_image(sif, ledger, runtime="pyxis")


def test_paths() -> None:
    assert Image("ab", 1).path(Layout("/r", "/s").images) == "/r/images/sha256-ab.sif"
