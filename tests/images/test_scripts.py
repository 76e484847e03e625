"""The scripts in the shells that clusters have, and with nothing but what they promise to need."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.images import scripts
from clusterkit.images.chunks import chunk_file
from clusterkit.images.delta import compare, write_pack
from tests.images.uploads import at_work
from tests.needs import find, param

SHELLS = {
    "dash": ["dash"],
    "bash": ["bash", "--posix"],
    "busybox": ["busybox", "sh"],
}
TOOLS = ["cat", "chmod", "cp", "find", "grep", "head", "ln", "ls", "mkdir", "mv", "rm"]
TOOLS += ["sha256sum", "sleep", "sync", "tail", "touch"]


@dataclass
class Shell:
    """A shell that finds the tools it needs and no others; below busybox, busybox's own."""

    argv: list[str]
    path: Path

    def run(self, script: str, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        argv = [*self.argv, "-c", script, "sh", *arguments]
        env = {"PATH": str(self.path)}
        return subprocess.run(argv, input=stdin, env=env, capture_output=True, check=False)


@pytest.fixture(params=[param(name) for name in SHELLS])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    name, *options = SHELLS[request.param]
    program = str(find(name))
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(program if name == "busybox" else str(shutil.which(tool)))
    return Shell([program, *options], folder)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "the images"
    folder.mkdir(mode=0o700)
    return folder


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", "basis", "pack", "recipe"])
def test_an_image_is_put_together(shell: Shell, images: Path, tmp_path: Path, fault: str) -> None:
    old = random.Random(1).randbytes(1_500_000)
    new = b"more" + old[:700_000] + old[701_000:] + random.Random(2).randbytes(100_000) + old[:300_000]
    (tmp_path / "old").write_bytes(old)
    (tmp_path / "new").write_bytes(new)
    delta = compare(chunk_file(tmp_path / "old"), chunk_file(tmp_path / "new"))
    listed = chunk_file(tmp_path / "new").encode()
    basis = images / f"sha256-{sha256(old)}.sif"
    basis.write_bytes(old if fault != "basis" else old[:400_000] + b"?" + old[400_001:])
    folder = images / ".upload"
    folder.mkdir()
    write_pack(tmp_path / "new", delta, folder / "pack")
    if fault == "pack":
        (folder / "pack").write_bytes((folder / "pack").read_bytes()[:-1])
    recipe = delta.recipe.replace("copy ", "copy 1", 1) if fault == "recipe" else delta.recipe
    arguments = [str(images), sha256(new), ".upload", str(len(new)), "400", sha256(old), "pack"]
    done = shell.run(scripts.ASSEMBLE, *arguments, stdin=recipe.encode() + listed)
    there = images / f"sha256-{sha256(new)}.sif"
    if fault == "none":
        assert (done.returncode, done.stderr) == (0, b"")
        assert there.read_bytes() == new
        assert there.stat().st_mode & 0o777 == 0o400
        assert there.with_suffix(".chunks").read_bytes() == listed
        assert not folder.exists()
        assert basis.exists()
    else:
        assert done.returncode == scripts.MISMATCH, done.stderr
        assert not there.exists()
        assert folder.exists()
        assert (b"damaged" in done.stdout) == (fault == "basis") != basis.exists()


def test_survey_claim_and_publish(shell: Shell, images: Path) -> None:
    data = random.Random(3).randbytes(100_000)
    digest, size = sha256(data), str(len(data))
    left = images / f".upload-{digest}.1"
    left.mkdir()
    (left / "image").write_bytes(data)
    os.utime(left / "image", (0, 0))
    os.utime(left, (0, 0))
    (images / f"sha256-{'a' * 64}.sif").write_bytes(b"other")
    found = shell.run(scripts.SURVEY, str(images), digest, size)
    assert found.stdout.decode().splitlines() == [
        f"part {size} {left.name}/image",
        f"image 5 no sha256-{'a' * 64}.sif",
    ]
    mine = f".upload-{digest}.2"
    assert shell.run(scripts.CLAIM, str(images), digest, mine, size, left.name).returncode == 0
    assert not left.exists()
    done = shell.run(scripts.PUBLISH, str(images), digest, mine, size, "440", stdin=b"list")
    assert (done.returncode, done.stderr) == (0, b"")
    assert shell.run(scripts.SURVEY, str(images), digest, size).stdout == b"have\n"
    assert shell.run(scripts.SURVEY, f"{images}/none", digest, size).stdout == b""
    assert (images / f"sha256-{digest}.sif").stat().st_mode & 0o777 == 0o440
    assert shell.run(scripts.PRESENT, str(images), digest, size).returncode == 0
    assert shell.run(scripts.PRESENT, str(images), digest, "1").returncode != 0
    left_over = {path.name for path in images.iterdir()} - {f"sha256-{'a' * 64}.sif"}
    assert left_over == {f"sha256-{digest}.sif", f"sha256-{digest}.chunks"}


def test_of_two_who_take_over_one_upload_one_gets_it(shell: Shell, images: Path) -> None:
    left = images / ".upload-d.1"
    left.mkdir()
    (left / "image").write_bytes(b"half")
    os.utime(left / "image", (0, 0))
    os.utime(left, (0, 0))
    for number in (2, 3):
        assert (
            shell.run(scripts.CLAIM, str(images), "d", f".upload-d.{number}", "9", left.name).returncode == 0
        )
    assert (images / ".upload-d.2/image").read_bytes() == b"half"
    assert list((images / ".upload-d.3").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("room", [True, False])
def test_what_somebody_is_writing_is_copied(shell: Shell, images: Path, room: bool) -> None:
    held, mine = images / ".upload-d.1", images / ".upload-d.2"
    held.mkdir()
    (held / "image").write_bytes(b"half")
    if not room:
        (shell.path / "cp").unlink()
    with at_work(held / "image"):
        assert shell.run(scripts.CLAIM, str(images), "d", mine.name, "9", held.name).returncode == 0
    assert (held / "image").read_bytes() == b"half"
    assert [path.read_bytes() for path in mine.iterdir()] == ([b"half"] if room else [])
    assert {path.name for path in images.iterdir()} == {held.name, mine.name}


def test_nothing_is_claimed_of_an_image_that_has_been_published_meanwhile(shell: Shell, images: Path) -> None:
    there = images / "sha256-d.sif"
    there.write_bytes(b"whole")
    for left in (".upload-d.gone", ""):
        done = shell.run(scripts.CLAIM, str(images), "d", ".upload-d.2", "5", left)
        assert done.returncode == scripts.PUBLISHED
    assert list(images.iterdir()) == [there]


def test_an_upload_whose_folder_is_gone(shell: Shell, images: Path) -> None:
    arguments = [str(images), sha256(b"x"), ".upload-gone", "1", "400"]
    assert shell.run(scripts.PUBLISH, *arguments).returncode == scripts.TAKEN_OVER
    (images / f"sha256-{sha256(b'x')}.sif").write_bytes(b"x")
    assert shell.run(scripts.PUBLISH, *arguments).returncode == 0
