"""Plans an image's upload; one round trip if the cluster has the image already."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import Path

from clusterkit.errors import ImageError, TransportError
from clusterkit.images import scripts
from clusterkit.images.chunks import ChunkList, chunk_file
from clusterkit.images.delta import MAX_STEPS, Delta, compare
from clusterkit.images.image import Image, not_writable
from clusterkit.site import Inquiry, Site
from clusterkit.transport.base import MissingFileError
from clusterkit.untrusted import ordinal

_BASES = 3
"""Most images on the cluster to compare with, newest first."""
_GOOD_ENOUGH = 0.05
"""Share of the bytes from which no better base is searched."""
_WORTH_IT = 0.7
"""Largest share of the bytes for a delta, which costs the cluster more work than a plain upload."""


class Way(StrEnum):
    """The way to send an image to a cluster."""

    PRESENT = "present"
    DELTA = "delta"
    """A delta to an image on the cluster."""
    RESUME = "resume"
    """The rest of an interrupted upload."""
    FULL = "full"


@dataclass(frozen=True)
class UploadPlan:
    """The plan for sending an image to a cluster."""

    way: Way
    bytes_to_send: int
    """About."""
    disk_bytes: int
    """Free space that it needs on the cluster."""
    part: str | None = None
    """The upload folder to resume."""
    basis: str | None = None
    """Digest of the delta's base image."""
    delta: Delta | None = None

    @property
    def present(self) -> bool:
        """Whether there is nothing to do."""
        return self.way is Way.PRESENT


def plan(site: Site, path: Path, image: Image, *, cache: Path, verify: bool = False) -> UploadPlan:
    """Plan to send an image to a cluster with the fewest bytes.

    Nothing is changed, except for images that `verify` finds damaged.

    Args:
        site: the cluster.
        path: the image on this machine; read only if the cluster has another one to compare with.
        image: its digest and size.
        cache: folder on this machine for chunk lists.
        verify: verify an existing image on the cluster, and set it aside if damaged.

    Raises:
        TransportError: the cluster gave no answer.
    """
    survey = _survey(site, image)
    if survey.present and verify and not _intact(site, image):
        survey = _survey(site, image)
    if survey.present:
        return UploadPlan(Way.PRESENT, 0, 0)
    arrived = survey.most("image")
    left = image.bytes - min(arrived.bytes, image.bytes)
    chosen = UploadPlan(Way.RESUME if arrived.bytes else Way.FULL, left, left, arrived.folder)
    for digest, delta in islice(_deltas(site, path, image, survey.bases, cache), _BASES):
        pack = survey.most(pack_name(digest))
        left = delta.pack_bytes - min(pack.bytes, delta.pack_bytes)
        if left < min(chosen.bytes_to_send, _WORTH_IT * image.bytes) and delta.steps <= MAX_STEPS:
            folder = pack.folder or arrived.folder
            half_made = min(arrived.bytes, image.bytes) if arrived.folder == folder else 0
            chosen = UploadPlan(Way.DELTA, left, left + image.bytes - half_made, folder, digest, delta)
        if delta.pack_bytes < _GOOD_ENOUGH * image.bytes:
            break
    return chosen


def pack_name(basis: str) -> str:
    """The pack's name in an upload folder; its contents depend on the base image."""
    return f"pack-{basis[:16]}"


def local_chunks(path: Path, image: Image, cache: Path) -> ChunkList:
    """The chunk list of an image on this machine, cached or computed.

    Raises:
        ImageError: the file's size differs from the image's.
    """
    known = _cached(cache, image.digest)
    if known is None or known.total_bytes != image.bytes:
        known = chunk_file(path)
        if known.total_bytes != image.bytes:
            raise ImageError(f"{path} has changed since it was hashed", hint="run the same command again")
        _keep(cache, image.digest, known)
    return known


@dataclass(frozen=True)
class _UploadPart:
    folder: str | None
    name: str
    bytes: int


@dataclass
class _Survey:
    present: bool = False
    parts: list[_UploadPart] = field(default_factory=list)
    bases: list[tuple[str, bool]] = field(default_factory=list)
    """Digests of the cluster's images, newest first, and whether they have chunk lists."""

    def most(self, name: str) -> _UploadPart:
        """The largest partial upload of this name; one of 0 bytes without any."""
        named = [part for part in self.parts if part.name == name]
        return max(named, key=lambda part: part.bytes, default=_UploadPart(None, name, 0))


def inquiry(image: Image) -> Inquiry:
    """The inquiry that `plan` makes first."""
    return Inquiry("images", scripts.SURVEY, (image.digest, str(image.bytes)))


def _survey(site: Site, image: Image) -> _Survey:
    answer = site.ask(inquiry(image))
    if answer.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot read {site.layout.images}: {answer.reason}")
    found = _Survey()
    for line in answer.text.splitlines():
        match line.split():
            case ["have"]:
                found.present = True
            case ["part", size, file]:
                folder, _, name = file.partition("/")
                found.parts.append(_UploadPart(folder, name, ordinal(size) or 0))
            case ["image", _, chunks, name]:
                found.bases.append((name.removeprefix("sha256-").removesuffix(".sif"), chunks == "yes"))
    return found


def _intact(site: Site, image: Image) -> bool:
    argv = ["sh", "-c", scripts.VERIFY, "sh", site.layout.images, image.digest]
    answer = site.transport.run(argv, check=False, timeout=None)
    if answer.returncode == scripts.NOT_WRITABLE:
        raise not_writable(site, answer, f"image {image.digest[:12]} in it is damaged")
    if answer.returncode not in (0, scripts.MISMATCH):
        raise TransportError(f"{site.transport.where}: cannot read {image.name}: {answer.reason}")
    return answer.returncode == 0


def _deltas(
    site: Site, path: Path, image: Image, bases: Sequence[tuple[str, bool]], cache: Path
) -> Iterator[tuple[str, Delta]]:
    """Deltas to the cluster's images with known chunks."""
    for digest, listed in bases:
        old = _cached(cache, digest)
        if old is None and listed:
            old = _fetched(site, digest, cache)
        if old is not None:
            yield digest, compare(old, local_chunks(path, image, cache))


def _fetched(site: Site, digest: str, cache: Path) -> ChunkList | None:
    try:
        old = ChunkList.decode(site.transport.read(f"{site.layout.images}/sha256-{digest}.chunks"))
    except MissingFileError:  # removed a moment ago
        return None
    if old is not None:
        _keep(cache, digest, old)
    return old


def _cached(cache: Path, digest: str) -> ChunkList | None:
    try:
        return ChunkList.decode((cache / f"sha256-{digest}.chunks").read_bytes())
    except FileNotFoundError:
        return None


def _keep(cache: Path, digest: str, chunks: ChunkList) -> None:
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, temporary = tempfile.mkstemp(dir=cache)
    with os.fdopen(handle, "wb") as file:
        file.write(chunks.encode())
    Path(temporary).replace(cache / f"sha256-{digest}.chunks")
