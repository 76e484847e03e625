"""A deploy whose client dies, whose network breaks, whose login node dies, whose disk fills up, at random.

At no time may anything half done lie under a final name, and what has arrived is not sent again.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.snapshots import manifest
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.images.uploads import HEADER, flip, sha256

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MB = 1_000_000
IMAGE, FILES, FILE = 200 * MB, 60, 400_000
POINTS = 20
RATE = "160mbit"
SLACK = 4 * MB
"""What is under way when it happens, at most a window of 2 MiB, goes again; and each login's own bytes."""
OVERHEAD = 1.08
"""Headers of packets, packets that the slow cable drops, and checksums of what is there."""


@dataclass(frozen=True)
class Far:
    """The project's work root on a small disk of the login node."""

    user: User
    disk: Path

    @property
    def cluster(self) -> Cluster:
        return self.user.cluster

    @property
    def images(self) -> Path:
        return self.disk / "root/images"

    @property
    def snapshots(self) -> Path:
        return self.disk / "root/snapshots"

    def arrived(self) -> int:
        """Bytes of image and code that are there; of what several uploads have begun, the furthest."""
        image = [*self.images.glob(".upload-*/image"), *self.images.glob("sha256-*.sif")]
        files: dict[tuple[str, str], int] = {}
        for folder in self.snapshots.glob("*"):
            for path in folder.rglob("*"):
                key = folder.name.strip(".").partition(".")[0], str(path.relative_to(folder))
                files[key] = max(files.get(key, 0), size(path))
        return max(map(size, image), default=0) + sum(files.values())

    def whole(self) -> None:
        """What has its final name is complete, and what it should be."""
        for image in self.images.glob("sha256-*.sif"):
            assert image.name == f"sha256-{sha256(image)}.sif"
        for snapshot in self.snapshots.glob("[!.]*"):
            written = manifest.unpack((snapshot / "manifest.gz").read_bytes())
            assert manifest.address(written) == snapshot.name
            wanted = {name: entry.digest for name, entry in manifest.parse(written).items()}
            files = [path for path in snapshot.rglob("*") if not path.is_dir()]
            found = {str(path.relative_to(snapshot)): sha256(path) for path in files}
            del found["manifest.gz"]
            assert found == wanted


def size(path: Path) -> int:
    try:
        return 0 if path.is_dir() else path.stat().st_size
    except FileNotFoundError:
        return 0  # renamed a moment ago


@pytest.fixture
def far(cluster: Cluster, tmp_path: Path) -> Iterator[Far]:
    image = tmp_path / "image.sif"
    dice = random.Random(4)
    image.write_bytes(HEADER + dice.randbytes(IMAGE - len(HEADER)))
    user = User.settle(tmp_path, cluster, image)
    for number in range(FILES):
        (user.folder / f"data {number}").write_bytes(dice.randbytes(FILE))
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace(f"/share/$USER/{tmp_path.name}", "/share/small/root")
    settings.write_text(text)
    with cluster.disk("login", "small", f"{(IMAGE + FILES * FILE) * 3 // 2}") as disk:
        cluster.rate("login", RATE)
        yield Far(user, disk)
        cluster.rate("login", None)


@dataclass
class Strike:
    """One fault, and the deploy it happens to."""

    far: Far
    deploy: subprocess.Popen[str]
    dice: random.Random

    def client_killed(self) -> None:
        self.deploy.kill()
        self.deploy.communicate()
        for part in self.far.images.glob(".upload-*/image"):
            if arrived := size(part):
                flip(part, self.dice.randrange(arrived))  # as a bad disk would, meanwhile

    def link_cut(self) -> None:
        self.far.cluster.cut("login")
        time.sleep(self.dice.uniform(0.1, 1.5))
        if self.dice.random() < 0.5:
            self.deploy.kill()
            self.deploy.communicate()
        self.far.cluster.heal("login")

    def node_killed(self) -> None:
        self.far.cluster.kill_node("login")
        time.sleep(self.dice.uniform(0.0, 1.0))
        self.far.cluster.start_node("login")
        self.far.cluster.rate("login", RATE)

    def disk_filled(self) -> None:
        ballast = self.far.disk / "ballast"
        try:
            with ballast.open("wb", buffering=0) as file:
                while file.write(bytes(MB)):
                    continue
        except OSError:  # full
            _, said = self.deploy.communicate(timeout=60)
        ballast.unlink()
        if self.deploy.returncode:
            assert self.deploy.returncode in (4, 6), said
            assert "no space left" in said
            assert "Traceback" not in said


KINDS: dict[str, Callable[[Strike], None]] = {
    "client killed": Strike.client_killed,
    "link cut": Strike.link_cut,
    "node killed": Strike.node_killed,
    "disk filled": Strike.disk_filled,
}


@pytest.mark.parametrize("seed", [int(os.environ.get("FAULTS_SEED", "4"))])
def test_twenty_faults_at_random_points(far: Far, seed: int) -> None:
    dice = random.Random(seed)
    kinds = [*KINDS] * (POINTS // len(KINDS))
    dice.shuffle(kinds)
    points = sorted(dice.randrange(IMAGE + FILES * FILE) for _ in kinds)
    began = time.monotonic()
    deploy = far.user.starts("deploy")
    sent, arrived = far.cluster.sent_bytes(), 0
    try:
        for kind, point in zip(kinds, points, strict=True):
            deadline = time.monotonic() + 120
            while (now := far.arrived()) < point and deploy.poll() is None:
                assert time.monotonic() < deadline, f"{now} of {point}"
                time.sleep(0.02)
            print(f"{time.monotonic() - began:6.1f} s, {now / MB:6.1f} MB there: {kind}", end=" ", flush=True)
            if deploy.poll() is None:
                time.sleep(dice.uniform(0, 0.3))
                KINDS[kind](Strike(far, deploy, dice))
            if deploy.poll() is not None:
                print(deploy.returncode, end=" ")
            far.whole()
            was, sent, before, arrived = sent, far.cluster.sent_bytes(), arrived, far.arrived()
            print(f"{(sent-was)/MB:.1f} sent {(arrived-before)/MB:.1f} arrived", flush=True)
            assert sent - was <= OVERHEAD * (arrived - before) + SLACK
            if deploy.poll() is not None:
                deploy = far.user.starts("deploy")
        _, said = deploy.communicate(timeout=120)
        assert deploy.returncode == 0, said
    finally:
        deploy.kill()
    print(f"{time.monotonic() - began:6.1f} s")
    far.whole()
    digest = sha256(far.user.folder.parent / "image.sif")
    assert {path.name for path in far.images.iterdir()} == {f"sha256-{digest}.sif", f"sha256-{digest}.chunks"}
    (project,) = far.snapshots.glob("*/project")
    assert len(list(project.glob("data *"))) == FILES
    assert list(far.snapshots.glob(".*")) == []
    assert far.cluster.sent_bytes() - sent < IMAGE + FILES * FILE - arrived + SLACK
    sent = far.cluster.sent_bytes()
    assert far.user.types("deploy").count("already there") == 2
    assert far.cluster.sent_bytes() - sent < MB
