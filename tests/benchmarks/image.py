"""A changed image to a cluster that has the old one: our delta against rsync's own, and against a full send.

The pair is the trainer image of the test cluster's cache and the same with one dependency changed, packed
anew (`--quick`, or where there is none: random bytes, which is what compressed data looks like, with pieces
put in, changed and taken out). Everything goes over a real sshd on loopback, through a relay that lets some
200 Mbit/s up; every result is compared.

`share_ours`, `share_rsync`: bytes that travelled to the cluster, of those of the new image; ours count the
recipe and the chunk list, rsync's its whole conversation that way. `ratio_bytes`: rsync's over ours. rsync
needs the old image linked under the name of the new one for it, and loses it when interrupted.
`ratio_full`: seconds of a full `rsync -e ssh` over ours, which pays its login, and hashing here and there.
`chunk_mb_s`: MB a second of processor time for the cutting and hashing of chunks.
"""

from __future__ import annotations

import filecmp
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from clusterkit.config.models import Cluster
from clusterkit.images.chunks import chunk_file
from clusterkit.images.image import local_image
from clusterkit.images.planning import plan
from clusterkit.images.upload import Sent, upload
from clusterkit.runs.ledger import Ledger
from clusterkit.site import open_site
from clusterkit.transport.base import ProgressCallback
from tests.benchmarks._report import arguments, report
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.relay import Relay

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "clusterkit" / "testbed"
HEADER = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"
CHANGED = "opt/venv/lib/python3*/site-packages/packaging/*.py"
PAUSE = 32_768 / 25e6
PACKING = ["-comp", "zstd", "-Xcompression-level", "3", "-quiet", "-no-progress"]


@contextmanager
def no_bar(label: str, total: int | None) -> Iterator[ProgressCallback]:
    """Show nothing."""
    yield lambda report: None


def made_up(folder: Path, megabytes: int) -> tuple[Path, Path]:
    """A pair of random bytes; a fiftieth of a per cent of it differs, in three places."""
    dice = random.Random(1)
    content = bytearray(HEADER + b"".join(dice.randbytes(1_000_000) for _ in range(megabytes)))
    old, new = folder / "old.sif", folder / "new.sif"
    old.write_bytes(content)
    piece, quarter = megabytes * 70, len(content) // 4
    content[quarter:quarter] = dice.randbytes(piece)
    content[2 * quarter : 2 * quarter + piece] = dice.randbytes(piece)
    del content[3 * quarter : 3 * quarter + piece]
    new.write_bytes(content)
    return old, new


def repacked(folder: Path, image: Path) -> tuple[Path, Path]:
    """The image unpacked and packed again, as it was and with one dependency changed."""
    head, _, rest = image.read_bytes().partition(b"hsqs")
    raw, tree = folder / "raw", folder / "tree"
    raw.write_bytes(b"hsqs" + rest)
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-d", tree, raw], check=True, capture_output=True)
    pair = folder / "old.sif", folder / "new.sif"
    for path in pair:
        subprocess.run(["mksquashfs", tree, raw, *PACKING, "-noappend"], check=True, capture_output=True)
        path.write_bytes(head + raw.read_bytes())
        for source in tree.glob(CHANGED):  # for the second one
            before = source.stat()
            source.write_text(source.read_text() + "\n# another version\n")
            os.utime(source, ns=(before.st_atime_ns, before.st_mtime_ns))
    shutil.rmtree(tree)
    raw.unlink()
    return pair


def measure(folder: Path, old: Path, new: Path) -> tuple[Sent, dict[str, float]]:
    """Send the new image in every way; returns what ours took, and seconds and bytes of all."""
    took: dict[str, float] = {}
    with (
        closing(LoopbackSshd(folder / "sshd")) as server,
        closing(Relay(server.port)) as relay,
        Ledger(folder / "laptop" / "ledger") as ledger,
    ):
        root, peers, ssh_config = folder / "root", folder / "peers", folder / "ssh_config"
        ssh_config.write_text(relay.host_block(server))
        cluster = Cluster(name="far", host=server.alias, ssh_config=ssh_config, root=str(root))

        def send(path: Path) -> Sent:
            with open_site(cluster) as site:
                image, cache = local_image(path, ledger), folder / "laptop" / "chunks"
                todo = plan(site, path, image, cache=cache)
                return upload(site, path, image, todo, cache=cache, bar=no_bar)

        def rsync(*options: str) -> float:
            rsh = f"ssh -F {ssh_config}"
            argv = ["rsync", "-t", "--stats", "--no-human-readable", *options, "-e", rsh]
            done = subprocess.run(
                [*argv, str(new), f"node:{peers}/new.sif"], check=True, capture_output=True, text=True
            )
            (sent,) = re.findall(r"Total bytes sent: (\d+)", done.stdout)
            return float(sent)

        send(old)
        relay.pause = PAUSE
        os.sync()
        began = time.perf_counter()
        ours = send(new)
        took["ours_s"] = time.perf_counter() - began
        published = root / "images" / local_image(new, ledger).name
        peers.mkdir()
        os.sync()
        began = time.perf_counter()
        took["full_bytes"] = rsync()
        took["full_s"] = time.perf_counter() - began
        (peers / "new.sif").unlink()
        os.link(root / "images" / local_image(old, ledger).name, peers / "new.sif")
        began = time.perf_counter()
        took["rsync_bytes"] = rsync("--no-whole-file", "--ignore-times")
        took["rsync_s"] = time.perf_counter() - began
        for path in (published, peers / "new.sif"):
            if not filecmp.cmp(path, new, shallow=False):
                raise AssertionError(f"{path} differs")
    return ours, took


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    cached = sorted(CACHE.glob("trainer-*.sif"), key=lambda path: path.stat().st_mtime)
    real = not quick and bool(cached) and all(map(shutil.which, ("mksquashfs", "unsquashfs")))
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as name:
        folder = Path(name)
        old, new = repacked(folder, cached[-1]) if real else made_up(folder, 100 if quick else 500)
        size = new.stat().st_size
        ours, took = measure(folder, old, new)
        began = time.process_time()
        chunk_file(new)
        cut = time.process_time() - began
    what = f"{size / 1e6:.0f} MB, {'one dependency changed' if real else 'three places changed'}"
    report(
        "image",
        [
            (what, f"{ours.way}", ours.bytes / 1e6, "rsync's delta", took["rsync_bytes"] / 1e6, "MB sent"),
            (what, f"{ours.way}", took["ours_s"], "rsync's delta", took["rsync_s"], "s"),
            (what, f"{ours.way}", took["ours_s"], "rsync -e ssh, all", took["full_s"], "s"),
        ],
        {
            **took,
            "ours_bytes": float(ours.bytes),
            "share_ours": ours.bytes / size,
            "share_rsync": took["rsync_bytes"] / size,
            "ratio_bytes": took["rsync_bytes"] / ours.bytes,
            "ratio_full": took["full_s"] / took["ours_s"],
            "chunk_mb_s": size / 1e6 / cut,
        },
    )


if __name__ == "__main__":
    main()
