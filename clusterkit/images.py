"""The image store on a cluster: `images/sha256-<digest>.sif`, named by content.

An upload goes to a partial file that a later attempt continues, is verified by the cluster's own
sha256sum and published by rename; an image that is there is never sent again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import ImageError
from clusterkit.ledger import Ledger
from clusterkit.site import Site
from clusterkit.transport.base import ProgressCallback, SyncOptions

# A SIF starts with a run script line and has its magic at byte 32 (github.com/apptainer/sif, header.go).
_MAGIC_OFFSET, _MAGIC = 32, b"SIF_MAGIC"
_CHUNK = 4 << 20


@dataclass(frozen=True)
class Image:
    """An image by content."""

    digest: str
    """sha256, hexadecimal."""
    bytes: int

    def path(self, images: str) -> str:
        """Where the image lies below a cluster's images folder."""
        return f"{images}/sha256-{self.digest}.sif"


def local_image(path: Path, ledger: Ledger, *, hashed: Callable[[int], None] | None = None) -> Image:
    """The digest of an image file; hashing is skipped when the file is as it was last time.

    Args:
        path: a .sif file on this machine.
        ledger: remembers digests by size and modification time.
        hashed: called with the number of bytes hashed so far.

    Raises:
        ImageError: the file is missing or is no SIF image.
    """
    path = path.resolve()
    if not path.is_file():
        raise ImageError(
            f"{path}: no such image", hint="build one with `clusterkit build`, or set `image` of the cluster"
        )
    with path.open("rb") as file:
        header = file.read(_MAGIC_OFFSET + len(_MAGIC))
        if header[_MAGIC_OFFSET:] != _MAGIC:
            raise ImageError(
                f"{path}: not a SIF image",
                hint="convert it: apptainer build image.sif docker-archive://archive.tar",
            )
        digest = ledger.digest(path)
        if digest is None:
            file.seek(0)
            digest = _sha256(file.read, hashed)
            ledger.set_digest(path, digest)
    return Image(digest, path.stat().st_size)


def _sha256(read: Callable[[int], bytes], hashed: Callable[[int], None] | None) -> str:
    digest, done = hashlib.sha256(), 0
    while chunk := read(_CHUNK):
        digest.update(chunk)
        done += len(chunk)
        if hashed:
            hashed(done)
    return digest.hexdigest()


def present(site: Site, image: Image) -> bool:
    """Whether the cluster has the image, whole (its size tells: it was verified when published)."""
    path = image.path(site.layout.images)
    result = site.transport.run(["sh", "-c", 'wc -c < "$1"', "sh", path], check=False)
    return result.returncode == 0 and result.text.strip() == str(image.bytes)


@dataclass(frozen=True)
class Plan:
    """What an upload would do."""

    present: bool
    bytes_to_send: int


def plan(site: Site, image: Image) -> Plan:
    """Ask a cluster, in one command, what of an image it lacks; a broken-off upload counts as arrived."""
    paths = [image.path(site.layout.images), _part(site, image)]
    script = 'for file; do wc -c < "$file" 2>/dev/null || echo 0; done'
    there, arrived = map(int, site.transport.run(["sh", "-c", script, "sh", *paths]).text.split())
    present = there == image.bytes
    return Plan(present, 0 if present else max(0, image.bytes - arrived))


def send(site: Site, path: Path, image: Image, *, progress: ProgressCallback | None = None) -> None:
    """Bring an image's bytes to the cluster, under a name nobody uses.

    Raises:
        ImageError: the cluster lacks the room.
        TransportError: the transfer broke off; run it again and it goes on where it was.
    """
    part = _part(site, image)
    _check_room(site, image, part)
    site.transport.push(path, part, options=SyncOptions(inplace=True, mode="F400"), progress=progress)


def publish(site: Site, image: Image) -> None:
    """Verify what was sent with the cluster's own sha256sum, and give it its name.

    Raises:
        ImageError: what arrived is not what was sent; it is removed.
    """
    part = _part(site, image)
    script = 'set -- "$1" "$2" $(sha256sum "$1"); test "$3" = "$0" && mv -f "$1" "$2"'
    result = site.transport.run(
        ["sh", "-c", script, image.digest, part, image.path(site.layout.images)], check=False, timeout=None
    )
    if result.returncode != 0:
        site.transport.run(["rm", "-f", part], check=False)
        raise ImageError(
            f"{site.transport.where}: the image that arrived does not match {image.digest[:12]}",
            hint="the damaged upload was removed; run `clusterkit deploy` again",
        )


def _part(site: Site, image: Image) -> str:
    return f"{site.layout.images}/.sha256-{image.digest}.part"


def _check_room(site: Site, image: Image, part: str) -> None:
    if site.free_bytes is None:
        return
    result = site.transport.run(["sh", "-c", 'wc -c < "$1" 2>/dev/null || echo 0', "sh", part], check=False)
    arrived = int(result.text.strip() or 0)
    if site.free_bytes < image.bytes - arrived:
        raise ImageError(
            f"{site.transport.where}: no space left for the image: {site.layout.root} has "
            f"{site.free_bytes / 2**30:.1f} GiB free, {(image.bytes - arrived) / 2**30:.1f} GiB are needed",
            hint="free some space there, or set `root` of the cluster to a larger file system",
        )
