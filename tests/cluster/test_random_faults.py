"""A deploy whose client dies, whose network breaks, whose login node dies, whose disk fills up, at random.

At no time may anything half done lie under a final name, and what has arrived is not sent again.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from clusterkit.snapshots.snapshot import address, parse_manifest, unpack_manifest
from tests.cluster.cluster import Cluster
from tests.cluster.laptop import User
from tests.images.uploads import HEADER, age, flip, sha256
from tests.sampling import SEED, sampled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

MB = 1_000_000
IMAGE, FILES, FILE = 40 * MB, 24, 200_000
IMPATIENT = """
from clusterkit.transport import factory
from clusterkit.transport.connection import Liveness
from clusterkit.transport.openssh import master
factory.PAUSES = (0.0,)
Liveness.__init__.__kwdefaults__.update(probe_seconds=0.5, dead_seconds=5.0)
master._ALIVE_SECONDS, master._ALIVE_COUNT = 2, 2
"""
"""What the command imports first: it gives a silent link up sooner."""
RATE = "80mbit"
SLACK = 4 * MB
"""What is under way when it happens, at most a window of 2 MiB, goes again; and each login's own bytes."""
OVERHEAD = 1.08
"""Headers of packets, packets that the slow cable drops, and checksums of what is there."""


@dataclass(frozen=True)
class Far:
    """The project's work root on a small disk of the login node."""

    user: User
    disk: Path
    unlisted: set[str] = field(default_factory=set)
    """Digests of images published on a full disk, where no room may be left for the list of their chunks."""

    @property
    def published(self) -> set[str]:
        """Digests of the images that are there."""
        return {path.stem.removeprefix("sha256-") for path in self.images.glob("sha256-*.sif")}

    @property
    def cluster(self) -> Cluster:
        return self.user.cluster

    @property
    def images(self) -> Path:
        return self.disk / "root/images"

    @property
    def snapshots(self) -> Path:
        return self.disk / "root/snapshots"

    def deploys(self) -> subprocess.Popen[str]:
        return self.user.starts("deploy", PYTHONPATH=str(self.user.folder.parent))

    def arrived(self) -> int:
        """Bytes of image and code that are there; of what several uploads have begun, the furthest."""
        image = [*self.images.glob(".upload-*/image"), *self.images.glob("sha256-*.sif")]
        files: dict[tuple[str, str], int] = {}
        for top, _, names in os.walk(self.snapshots):  # unlike a glob, it bears that folders are renamed
            folder, *below = Path(top).relative_to(self.snapshots).parts or (".",)
            for name in names:
                key = folder.strip(".").partition(".")[0], "/".join((*below, name))
                files[key] = max(files.get(key, 0), size(Path(top, name)))
        return max(map(size, image), default=0) + sum(files.values())

    def at_rest(self) -> None:
        """End what the login node still runs of connections that broke: sshd may notice that hours later."""
        ends = """for pid in $(pgrep -u "$1" -x 'rsync|sh|bash|dash|sshd'); do kill -KILL "$pid"; done"""
        self.cluster.run("login", ["sh", "-c", ends, "sh", self.cluster.user])

    def whole(self) -> None:
        """What has its final name is complete, and what it should be."""
        for image in self.images.glob("sha256-*.sif"):
            assert image.name == f"sha256-{sha256(image)}.sif"
        for snapshot in self.snapshots.glob("[!.]*"):
            written = unpack_manifest((snapshot / "manifest.gz").read_bytes())
            assert address(written) == snapshot.name
            wanted = {name: entry.digest for name, entry in parse_manifest(written).items()}
            files = [path for path in snapshot.rglob("*") if not path.is_dir()]
            found = {str(path.relative_to(snapshot)): sha256(path) for path in files}
            del found["manifest.gz"]
            assert found == wanted


def size(path: Path) -> int:
    try:
        return 0 if path.is_dir() else path.stat().st_size
    except FileNotFoundError:
        return 0  # renamed a moment ago


@pytest.fixture(params=sampled(["paramiko", "openssh"], 1))
def far(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Iterator[Far]:
    image = tmp_path / "image.sif"
    dice = random.Random(4)
    image.write_bytes(HEADER + dice.randbytes(IMAGE - len(HEADER)))
    user = User.settle(tmp_path, cluster, image)
    (tmp_path / "sitecustomize.py").write_text(IMPATIENT)
    for number in range(FILES):
        (user.folder / f"data {number}").write_bytes(dice.randbytes(FILE))
    settings = user.folder / "clusterkit.toml"
    text = settings.read_text().replace(f"/share/$USER/{tmp_path.name}", "/share/small/root")
    settings.write_text(text.replace('host = "login"\n', f'host = "login"\ntransport = "{request.param}"\n'))
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
        self.deploy.wait()
        # as a bad disk would, flip a byte of what has arrived; not of what the server may be publishing
        begun = [part for part in self.far.images.glob(".upload-*/image") if size(part) < IMAGE]
        data = [*self.far.snapshots.glob("*/project/data *")]
        if len({path.name for path in data}) < FILES:
            begun += data
        if begun := sorted(path for path in begun if size(path)):
            path = self.dice.choice(begun)
            flip(path, self.dice.randrange(size(path)))

    def link_cut(self) -> None:
        self.far.cluster.cut("login")
        time.sleep(self.dice.uniform(0.1, 1.5))
        if self.dice.random() < 0.5:
            self.deploy.kill()
            self.deploy.wait()
        self.far.cluster.heal("login")

    def link_lost(self) -> None:
        self.far.cluster.cut("login")
        try:
            assert self.deploy.wait(200) in (0, 4)
        finally:
            self.far.cluster.heal("login")

    def node_killed(self) -> None:
        self.far.cluster.kill_node("login")
        time.sleep(self.dice.uniform(0.0, 1.0))
        self.far.cluster.start_node("login")
        self.far.cluster.rate("login", RATE)

    def disk_filled(self) -> None:
        ballast, before = self.far.disk / "ballast", self.far.published
        with ballast.open("wb") as file:
            while free := shutil.disk_usage(self.far.disk).free:
                with contextlib.suppress(OSError):  # the deploy was faster
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, free)
            _, said = self.deploy.communicate(timeout=200)
        self.far.unlisted.update(self.far.published - before)
        ballast.unlink()
        assert self.deploy.returncode == 0 or "no space left" in said


KINDS: dict[str, Callable[[Strike], None]] = {
    "client killed": Strike.client_killed,
    "link cut": Strike.link_cut,
    "link lost": Strike.link_lost,
    "node killed": Strike.node_killed,
    "disk filled": Strike.disk_filled,
}


def going_on(far: Far, deploy: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """The deploy, or where it has ended, in one of the ways it may, the next one."""
    if deploy.poll() is None:
        return deploy
    _, said = deploy.communicate()
    assert deploy.returncode in (0, 4, 6, -signal.SIGKILL), said
    assert "Traceback" not in said, said
    return far.deploys()


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_faults_at_random_points(far: Far, times: int) -> None:
    """Each kind so many times."""
    seed = int(os.environ.get("FAULTS_SEED", SEED))
    print(f"\nFAULTS_SEED={seed}")
    dice = random.Random(seed)
    kinds = [*KINDS] * times
    dice.shuffle(kinds)
    began = time.monotonic()
    deploy = far.deploys()
    sent, arrived = far.cluster.sent_bytes(), 0
    try:
        for left, kind in zip(range(len(kinds), 0, -1), kinds, strict=True):
            point = arrived + dice.uniform(0.2, 1.0) * (IMAGE + FILES * FILE - arrived) / left
            deadline = time.monotonic() + 300
            while (now := far.arrived()) < point:
                assert time.monotonic() < deadline, f"{now} of {point}"
                deploy = going_on(far, deploy)
                time.sleep(0.02)
            time.sleep(dice.uniform(0, 0.3))
            print(f"{time.monotonic() - began:6.1f} s, {now / MB:6.1f} MB there: {kind}", end=" ", flush=True)
            KINDS[kind](Strike(far, deploy, dice))
            far.whole()
            was, sent, before, arrived = sent, far.cluster.sent_bytes(), arrived, far.arrived()
            print(f"({(sent - was) / MB:.1f} MB sent, {(arrived - before) / MB:.1f} MB arrived)", flush=True)
            assert sent - was <= OVERHEAD * (arrived - before) + SLACK
            deploy = going_on(far, deploy)
        if deploy.wait(300):
            deploy = going_on(far, deploy)
        _, said = deploy.communicate(timeout=300)
        assert deploy.returncode == 0, said
    finally:
        deploy.kill()
    far.whole()
    digest = sha256(far.user.folder.parent / "image.sif")
    names = {
        path.name for path in far.images.iterdir() if not path.is_symlink()
    }  # the work root is linked there
    if digest in far.unlisted:
        names.add(f"sha256-{digest}.chunks")
    assert names == {f"sha256-{digest}.sif", f"sha256-{digest}.chunks"}
    (project,) = far.snapshots.glob("[!.]*/project")
    assert len(list(project.glob("data *"))) == FILES
    assert far.cluster.sent_bytes() - sent <= OVERHEAD * (far.arrived() - arrived) + SLACK
    far.at_rest()
    for begun in far.snapshots.glob(".*"):
        age(begun, 120)
    sent = far.cluster.sent_bytes()
    assert far.user.types("deploy").count("already there") == 2
    assert far.cluster.sent_bytes() - sent < MB // 10
    assert list(far.snapshots.glob(".*")) == []
