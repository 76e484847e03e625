"""Sends an image to a cluster: its rest, a delta, or all of it; verified there, then published.

Any damage, such as a flipped byte in a partial file or a damaged base image, shows in the digest of the
result; rsync then repairs the file by sending only the differences.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ImageError, TransportError
from clusterkit.images import scripts
from clusterkit.images.delta import Delta, write_pack
from clusterkit.images.image import Image, not_writable, present, sha256_of
from clusterkit.images.planning import UploadPlan, Way, local_chunks, pack_name
from clusterkit.site import Site
from clusterkit.transport.base import Bar, Completed, SyncOptions


@dataclass(frozen=True)
class Sent:
    """The cost of an upload."""

    way: Way
    bytes: int
    """Bytes sent: of the image, its recipe and its chunk list."""
    seconds: float = 0.0
    """Seconds of the transfer alone."""
    damaged: str | None = None
    """Digest of a damaged image on the cluster that was moved aside."""


def upload(site: Site, path: Path, image: Image, plan: UploadPlan, *, cache: Path, bar: Bar) -> Sent:
    """Carry out a plan. After an interruption at any point the next plan resumes.

    Args:
        site: the cluster.
        path: the image on this machine.
        image: its digest and size.
        plan: from `plan`, made a moment ago.
        cache: folder on this machine for chunk lists and packs.
        bar: opens progress bars.

    Raises:
        ImageError: the cluster lacks space, or the image on this machine has changed since it was hashed.
        TransportError: the transfer was interrupted; running it again resumes it.
    """
    if plan.way is Way.PRESENT:
        return Sent(Way.PRESENT, 0)
    _check_room(site, plan)
    with bar("reading the image", None):
        chunks = local_chunks(path, image, cache).encode()
    with bar("reusing what has already arrived" if plan.part else "preparing the upload", None):
        folder = _claim(site, image, plan)
    if folder is None:
        return Sent(Way.PRESENT, 0)
    one = _Upload(site, path, image, folder, chunks, bar)
    try:
        way = one.carry_out(plan, cache)
    except TransportError:
        if not _finished_elsewhere(site, image):
            raise
        way = plan.way
    return Sent(way, one.sent, one.seconds, plan.basis if one.damaged else None)


class _Upload:
    """One upload and its folder on the cluster."""

    def __init__(self, site: Site, path: Path, image: Image, folder: str, chunks: bytes, bar: Bar) -> None:
        self.site, self.path, self.image = site, path, image
        self.folder, self.chunks, self.bar = folder, chunks, bar
        self.sent, self.seconds = 0, 0.0
        self.damaged = False

    def carry_out(self, plan: UploadPlan, cache: Path) -> Way:
        """Send the image; returns the way actually used."""
        if plan.delta is None or plan.basis is None:
            self._whole()
            return plan.way
        if self._by_delta(plan.delta, plan.basis, cache):
            return Way.DELTA
        self._whole()
        return Way.FULL

    def _by_delta(self, delta: Delta, basis: str, cache: Path) -> bool:
        """Send the delta and assemble the image; False leaves the work to `_whole`."""
        name = pack_name(basis)
        with tempfile.TemporaryDirectory(dir=cache, prefix="pack-") as folder:
            pack = Path(folder, name)
            write_pack(self.path, delta, pack)
            self._push(pack, name, "new parts of the image", delta.pack_bytes)
        with self.bar("assembling the image there", None):
            answer = self._run(scripts.ASSEMBLE, basis, name, stdin=delta.recipe.encode() + self.chunks)
        self.damaged = "damaged" in answer.text.split()
        return answer.returncode == 0

    def _whole(self) -> None:
        """Make the file on the cluster equal to the local one, whatever its contents."""
        self._push(self.path, "image", "image", self.image.bytes)
        if self._publish():
            return
        if sha256_of(self.path) == self.image.digest:  # what had arrived before was not right
            self._push(self.path, "image", "repairing the image", self.image.bytes, checksum=True)
            if self._publish():
                return
        self.site.transport.run(["rm", "-rf", f"{self.site.layout.images}/{self.folder}"], check=False)
        raise ImageError(
            f"{self.site.transport.where}: the image that arrived does not match {self.image.digest[:12]}",
            hint=f"the upload was removed; if {self.path} has changed in the meantime, run the same "
            "command again",
        )

    def _push(self, source: Path, name: str, label: str, size: int, *, checksum: bool = False) -> None:
        options = SyncOptions(inplace=True, mode="F600", checksum=checksum)
        target = f"{self.site.layout.images}/{self.folder}/{name}"
        began = time.monotonic()
        with self.bar(label, size) as progress:
            self.sent += self.site.transport.push(source, target, options=options, progress=progress).bytes
        self.seconds += time.monotonic() - began

    def _publish(self) -> bool:
        with self.bar("verifying the image there", None):
            answer = self._run(scripts.PUBLISH, stdin=self.chunks)
        if answer.returncode not in (0, scripts.MISMATCH):
            raise TransportError(
                f"{self.site.transport.where}: the image cannot be published: {answer.reason}",
                hint="run the same command again: what has arrived is kept",
            )
        return answer.returncode == 0

    def _run(self, script: str, *more: str, stdin: bytes) -> Completed:
        arguments = [self.site.layout.images, self.image.digest, self.folder, str(self.image.bytes)]
        argv = ["sh", "-c", script, "sh", *arguments, self.site.sharing.file, *more]
        answer = self.site.transport.run(argv, stdin=stdin, check=False, timeout=None)
        self.sent += len(stdin)
        if answer.returncode == scripts.TAKEN_OVER:
            raise TransportError(
                f"{self.site.transport.where}: another upload of image {self.image.digest[:12]} has "
                "continued with the same files",
                hint="run the same command again: nothing is sent twice",
            )
        return answer


def _claim(site: Site, image: Image, plan: UploadPlan) -> str | None:
    """Claim an upload folder, with the leftovers of an earlier upload if there are any.

    None if another active upload has published the image.
    """
    folder = f".upload-{image.digest}.{secrets.token_hex(4)}"
    arguments = [site.layout.images, image.digest, folder, str(image.bytes), plan.part or ""]
    answer = site.transport.run(["sh", "-c", scripts.CLAIM, "sh", *arguments], check=False, timeout=None)
    if answer.returncode == scripts.PUBLISHED:
        return None
    if answer.returncode == scripts.NOT_WRITABLE:
        raise not_writable(site, answer, f"you may not add image {image.digest[:12]} to it")
    if answer.returncode != 0:
        raise TransportError(
            f"{site.transport.where}: cannot write to {site.layout.images}: {answer.reason}",
            hint="check its permissions and the free space on its disk",
        )
    return folder


def _finished_elsewhere(site: Site, image: Image) -> bool:
    """Whether another upload, which took this one for dead, has published the image."""
    with contextlib.suppress(TransportError):
        return present(site, image)
    return False


def _check_room(site: Site, plan: UploadPlan) -> None:
    needed = plan.disk_bytes
    if site.free_bytes is not None and site.free_bytes < needed:
        raise ImageError(
            f"{site.transport.where}: no space left for the image: {site.layout.images} has "
            f"{site.free_bytes / 2**30:.1f} GiB free, {needed / 2**30:.1f} GiB are needed",
            hint="`clusterkit storage prune` removes what no run uses; or set `root` to a larger disk",
        )
