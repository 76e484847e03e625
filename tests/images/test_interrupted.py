"""`clusterkit deploy` ended at random points of an upload: the next one completes and sends only the rest."""

from __future__ import annotations

import os
import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import forked
from tests.allowing import allow, state
from tests.doubles.full_disk import small_disk
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.relay import Relay
from tests.images.uploads import age, sha256
from tests.waiting import until

pytestmark = pytest.mark.slow  # real servers or processes, a second or more each

Command = forked.Process | subprocess.Popen[str]

MB = 1_000_000
SLACK = 1_500_000
"""Logins, commands, the code, what ssh adds, and the checksums of what is there."""

CONFIG = """
[project]
default_cluster = "far"
[clusters.far]
host = "node"
ssh_config = "{ssh_config}"
root = "{root}"
image = "image.sif"
"""


@dataclass
class Laptop:
    """A project folder whose cluster is behind a relay."""

    folder: Path
    root: Path
    relay: Relay

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def arrived(self) -> int:
        """Bytes of the upload that got furthest."""
        return max((part.stat().st_size for part in self.images.glob(".upload-*/image")), default=0)

    @property
    def env(self) -> dict[str, str]:
        own = {"PATH": os.environ["PATH"], "HOME": str(self.folder.parent), "COLUMNS": "200"}
        return forked.of_python() | own | state()

    def starts(self) -> Command:
        return forked.start(["deploy"], folder=self.folder, env=self.env, program="clusterkit")

    def deploys(self, code: int = 0) -> str:
        """Deploy to the end; returns what it said."""
        done = forked.run(["deploy"], folder=self.folder, env=self.env)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    def whole(self) -> None:
        """The image is there, right, and alone."""
        digest = sha256(self.folder / "image.sif")
        assert {path.name for path in self.images.iterdir() if not path.is_symlink()} == {
            f"sha256-{digest}.sif",
            f"sha256-{digest}.chunks",
        }
        assert sha256(self.images / f"sha256-{digest}.sif") == digest


def interrupted(laptop: Laptop, counts: list[int], act: Callable[[Command], object]) -> bool:
    """Deploy, and do something to it each time so many more bytes have gone up; nothing half may show.

    Returns:
        Whether it ended well all the same: it may have logged in again and gone on.
    """
    command = laptop.starts()
    left = list(counts)

    def strike() -> None:
        act(command)
        left.pop(0)
        if left:
            laptop.relay.after(left[0], strike)

    laptop.relay.after(left[0], strike)
    command.communicate(timeout=240)
    if command.returncode == 0:
        laptop.whole()
        return True
    assert list(laptop.images.glob("sha256-*")) == []
    return False


@pytest.fixture
def laptop(tmp_path: Path, sshd: LoopbackSshd, sif: Callable[..., Path]) -> Iterator[Laptop]:
    folder, root = tmp_path / "project", tmp_path / "root"
    folder.mkdir()
    with closing(Relay(sshd.port)) as relay:
        config = tmp_path / "ssh_config"
        config.write_text(relay.host_block(sshd))
        (folder / "clusterkit.toml").write_text(CONFIG.format(ssh_config=config, root=root))
        allow(folder)
        yield Laptop(folder, root, relay)


ENDS: dict[str, Callable[[Laptop, Command, LoopbackSshd], object]] = {
    "client killed": lambda laptop, command, sshd: command.kill(),
    "link cut": lambda laptop, command, sshd: laptop.relay.cut(),
    "server killed": lambda laptop, command, sshd: sshd.drop_connections(),
}


def survives(laptop: Laptop, sshd: LoopbackSshd, size: int, points: int, how: str) -> None:
    """End one upload at so many random points, then let it finish: at no time is much sent twice.

    A deploy whose client is killed is started again; one that loses its connection logs in again by itself.
    """
    dice = random.Random(f"{how} {points}")
    each = 1 if how == "client killed" else 5
    for begun in range(0, points, each):
        left, before, sent = size - laptop.arrived, laptop.arrived, laptop.relay.up
        most = max(400_000, 2 * left // points)
        counts = [dice.randrange(300_000, most) for _ in range(min(each, points - begun))]
        if interrupted(laptop, counts, lambda command: ENDS[how](laptop, command, sshd)):
            assert how != "client killed"
            # what was in flight each time, at most a window of 2 MiB, goes again; and the logins
            assert laptop.relay.up - sent < left + SLACK + len(counts) * (SLACK + 2 * MB) + size // 500
            return
        assert laptop.arrived >= before
        assert len(list(laptop.images.glob(".upload-*"))) <= 1
        for folder in laptop.images.glob(".upload-*"):
            age(folder, 120)  # else each deploy first waits to see whether somebody writes there
    left, before = size - laptop.arrived, laptop.relay.up
    laptop.deploys()
    laptop.whole()
    assert laptop.relay.up - before < left + SLACK + size // 500


@pytest.mark.parametrize("how", ENDS)
def test_an_upload_that_was_ended_goes_on(
    laptop: Laptop, sif: Callable[..., Path], sshd: LoopbackSshd, how: str
) -> None:
    sif(20 * MB).rename(laptop.folder / "image.sif")
    survives(laptop, sshd, 20 * MB, 2, how)
    assert "sent" not in laptop.deploys().split("code")[0]


def test_a_delta_that_was_ended_goes_on(laptop: Laptop, sif: Callable[..., Path]) -> None:
    image = laptop.folder / "image.sif"
    sif(20 * MB).rename(image)
    laptop.deploys()
    content = image.read_bytes()
    image.write_bytes(content[: 5 * MB] + random.Random(2).randbytes(12 * MB) + content[10 * MB :])
    command = laptop.starts()
    laptop.relay.after(8 * MB, command.kill)
    command.communicate(timeout=240)
    assert command.returncode != 0
    assert len(list(laptop.images.glob("sha256-*.sif"))) == 1
    (pack,) = laptop.images.glob(".upload-*/pack-*")
    arrived, before = pack.stat().st_size, laptop.relay.up
    assert arrived > 4 * MB
    said = laptop.deploys()
    assert f"of {image.stat().st_size / 2**20:.0f} MiB" in said
    assert laptop.relay.up - before < 12 * MB - arrived + SLACK
    assert sha256(laptop.images / f"sha256-{sha256(image)}.sif") == sha256(image)
    assert list(laptop.images.glob(".[!r]*")) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", ENDS)
def test_an_upload_that_is_ended_many_times(
    laptop: Laptop, sif: Callable[..., Path], sshd: LoopbackSshd, how: str
) -> None:
    sif(200 * MB).rename(laptop.folder / "image.sif")
    survives(laptop, sshd, 200 * MB, 20 if how == "client killed" else 5, how)


def test_two_deploys_of_one_image_at_once(laptop: Laptop, sif: Callable[..., Path]) -> None:
    sif(20 * MB).rename(laptop.folder / "image.sif")
    laptop.relay.pause = 0.1  # the first is at work for a minute, the second looks at that for six seconds
    first = laptop.starts()
    until(lambda: laptop.arrived > 2 * MB)
    second = laptop.starts()
    until(lambda: len(list(laptop.images.glob(".upload-*"))) == 2)
    laptop.relay.pause = 0.0
    for command in (first, second):
        said, _ = command.communicate(timeout=240)
        assert command.returncode == 0, said
    laptop.whole()


def test_an_upload_that_hangs_is_overtaken_and_does_no_harm(laptop: Laptop, sif: Callable[..., Path]) -> None:
    sif(20 * MB).rename(laptop.folder / "image.sif")
    hangs, goes_on = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.set()
        goes_on.wait(240)

    laptop.relay.after(10 * MB, hang)
    first = laptop.starts()
    assert hangs.wait(240)
    until(lambda: laptop.arrived > 8 * MB)  # a busy server is a little behind the relay
    left, before = 20 * MB - laptop.arrived, laptop.relay.up
    laptop.deploys()
    laptop.whole()
    assert laptop.relay.up - before < left + SLACK
    goes_on.set()
    said, _ = first.communicate(timeout=240)
    assert first.returncode == 0, said
    laptop.whole()


@pytest.mark.needs("a small disk")
def test_a_disk_that_fills_up(laptop: Laptop, sif: Callable[..., Path]) -> None:
    sif(20 * MB).rename(laptop.folder / "image.sif")
    with small_disk(laptop.root, kib=32768):
        filler = laptop.root / "filler"
        laptop.relay.after(8 * MB, lambda: filler.write_bytes(bytes(16 * MB)))
        said = laptop.deploys(code=4)
        assert "no space left" in said
        assert list(laptop.images.glob("sha256-*")) == []
        arrived = laptop.arrived
        assert arrived > 5 * MB
        filler.unlink()
        before = laptop.relay.up
        laptop.deploys()
        laptop.whole()
        assert laptop.relay.up - before < 20 * MB - arrived + SLACK
