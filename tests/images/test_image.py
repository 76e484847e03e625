"""The digest of an image on this machine."""

from pathlib import Path

import pytest

from clusterkit.errors import ImageError
from clusterkit.images.image import Image, local_image
from clusterkit.runs.ledger import Ledger
from clusterkit.site import Layout
from tests.programs import write_program


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


@pytest.mark.parametrize(("code", "arch"), [(b"02", "x86_64"), (b"04", "aarch64"), (b"00", ""), (b"", "")])
def test_a_sif_tells_its_architecture(tmp_path: Path, ledger: Ledger, code: bytes, arch: str) -> None:
    (tmp_path / "a.sif").write_bytes(b"\0" * 32 + b"SIF_MAGIC\00001\0" + code)
    assert local_image(tmp_path / "a.sif", ledger).arch == arch


@pytest.mark.parametrize(("machine", "arch"), [(62, "x86_64"), (183, "aarch64"), (3, "")])
def test_the_shell_of_a_squashfs_tells_its_architecture(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, machine: int, arch: str
) -> None:
    """Its /bin/sh is a link, of which unsquashfs shows nothing."""
    image, dash = tmp_path / "a.sqsh", tmp_path / "dash"
    image.write_bytes(b"hsqs")
    dash.write_bytes(b"\x7fELF" + b"\2\1\1" + b"\0" * 11 + machine.to_bytes(2, "little") + b"\0" * 44)
    monkeypatch.setenv("PATH", "")
    assert local_image(image, ledger, runtime="pyxis").arch == ""
    tools = write_program(tmp_path / "bin", "unsquashfs", f"[ $3 != usr/bin/dash ] || cat {dash}")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    assert local_image(image, ledger, runtime="pyxis").arch == arch


def test_a_record_keeps_the_image_of_each_architecture() -> None:
    image = Image.of(Image("ab", 1, "x86_64"), Image("cd", 2, "aarch64"))
    facts = image.facts("/r")
    assert [each["path"] for each in (facts, *facts["others"])] == ["/r/sha256-ab.sif", "/r/sha256-cd.sif"]
    again = Image.recorded(facts)
    assert (again, again.arch, again.others) == (image, "x86_64", image.others)
    assert Image("ab", 1).facts("/r").keys() == {"digest", "bytes", "path"}


def test_paths() -> None:
    assert Image("ab", 1).path(Layout("/r", "/s").images) == "/r/images/sha256-ab.sif"
