"""Which of an image's files the jobs of a cluster may need, and which images its nodes cannot start."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from clusterkit.config.models import Cluster
from clusterkit.errors import ImageError
from clusterkit.images.architecture import fitting, must_suit
from clusterkit.images.image import Image, local_image
from clusterkit.runs.ledger import Ledger
from clusterkit.submit.materials import images_of

X86, ARM = Image("a" * 64, 1, "x86_64"), Image("b" * 64, 1, "aarch64")
BOTH = Image.of(X86, ARM)
MIXED = {"*": "x86_64", "grace": "arm64", "all": "any"}


def cluster(arch: Any, **more: Any) -> Cluster:
    return Cluster(name="uni", host="uni", root="/w", arch=arch, **more)


@pytest.mark.parametrize(
    ("partitions", "kept"),
    [
        ([""], [X86]),
        (["cpu"], [X86]),
        (["grace"], [ARM]),
        (["cpu,grace"], [X86, ARM]),
        (["cpu", "grace"], [X86, ARM]),
        (["all"], [X86, ARM]),
        (["cpu", "all"], [X86, ARM]),
    ],
)
def test_jobs_keep_the_files_that_they_may_need(partitions: list[str], kept: list[Image]) -> None:
    requests = [(f"--partition={name}",) if name else () for name in partitions]
    assert list(fitting(BOTH, cluster(MIXED), requests).all) == kept


@pytest.mark.parametrize(
    ("image", "arch", "partition", "words"),
    [
        (X86, MIXED, "grace", "is for x86_64, and the nodes of grace are aarch64"),
        (X86, MIXED, "cpu,grace", "the nodes of grace are aarch64"),
        (ARM, "x86_64", "", "is for aarch64, and the nodes of uni are x86_64"),
        (BOTH, "riscv64", "cpu", "is for x86_64 and aarch64, and the nodes of cpu are riscv64"),
    ],
)
def test_an_image_that_nodes_cannot_start_is_refused(
    image: Image, arch: Any, partition: str, words: str
) -> None:
    with pytest.raises(ImageError, match=words) as refused:
        fitting(image, cluster(arch), [(f"--partition={partition}",) if partition else ()])
    assert "`clusterkit build --cluster uni" in (refused.value.hint or "")


@pytest.mark.parametrize("arch", [{}, {"grace": "aarch64"}, "any", MIXED])
def test_what_some_node_may_start_is_sent(arch: Any) -> None:
    must_suit(X86, cluster(arch))
    must_suit(Image("c" * 64, 1), cluster("aarch64"))
    with pytest.raises(ImageError):
        must_suit(X86, cluster("aarch64"))


def test_each_file_is_for_the_architecture_of_its_name(tmp_path: Path) -> None:
    def sif(name: str, code: bytes) -> None:
        (tmp_path / name).write_bytes(b"\0" * 32 + b"SIF_MAGIC\00001\0" + code + b"\0")

    site = cluster({}, image=str(tmp_path / "mine-{arch}.sif"))
    with Ledger(tmp_path / "l") as ledger:

        def found() -> dict[str, Path | None]:
            known = images_of(site, ledger, lambda *_: nullcontext(lambda _: None))
            return {image.arch: path for image, path in known.items()}

        ledger.set_deployed("uni", ARM)
        assert found() == {"aarch64": None}
        sif("mine-x86_64.sif", b"02")
        assert found() == {"x86_64": tmp_path / "mine-x86_64.sif", "aarch64": None}
        earlier = local_image(tmp_path / "mine-x86_64.sif", ledger, runtime="apptainer")
        # no image told its architecture then
        ledger.set_deployed("uni", Image(earlier.digest, earlier.bytes))
        assert found() == {"x86_64": tmp_path / "mine-x86_64.sif"}
        sif("mine-aarch64.sif", b"04")
        assert found()["aarch64"] == tmp_path / "mine-aarch64.sif"
        sif("mine-aarch64.sif", b"02")
        with pytest.raises(ImageError, match=r"mine-aarch64\.sif is for x86_64"):
            found()


def test_the_architecture_may_be_the_name_of_a_folder(tmp_path: Path) -> None:
    site = cluster({}, image=str(tmp_path / "{arch}/mine.sif"))
    path = tmp_path / "aarch64/mine.sif"
    path.parent.mkdir()
    path.write_bytes(b"\0" * 32 + b"SIF_MAGIC\00001\0" + b"04\0")
    with Ledger(tmp_path / "l") as ledger:
        known = images_of(site, ledger, lambda *_: nullcontext(lambda _: None))
    assert list(known.values()) == [path]
