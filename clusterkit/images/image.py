"""An image by content, and the digest of one on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from clusterkit.errors import ImageError
from clusterkit.runtimes import DEFAULT as DEFAULT_RUNTIME
from clusterkit.runtimes import runtime_of
from clusterkit.site import Site
from clusterkit.transport.base import Completed
from clusterkit.untrusted import can_be_shown

_BLOCK = 4 << 20


@dataclass(frozen=True)
class Image:
    """An image by content, whatever its format."""

    digest: str
    """sha256, hexadecimal."""
    bytes: int
    arch: str = field(default="", compare=False)
    """What `uname -m` says on machines that it is for; empty if unknown."""
    others: tuple[Image, ...] = field(default=(), compare=False)
    """The same image for other architectures."""

    @classmethod
    def of(cls, *images: Image) -> Image:
        """Returns the first of some images that differ in their architectures, with the others."""
        first, *others = images
        return replace(first, others=tuple(others))

    @classmethod
    def recorded(cls, facts: Mapping[str, Any]) -> Image:
        """Returns the image in a run.json."""
        others = tuple(cls.recorded(each) for each in facts.get("others", ()))
        return cls(facts["digest"], int(facts["bytes"]), facts.get("arch", ""), others)

    @property
    def all(self) -> tuple[Image, ...]:
        """Itself for each architecture."""
        return (replace(self, others=()), *self.others)

    def facts(self, images: str) -> dict[str, Any]:
        """Returns its description in run.json; `images` is the cluster's images folder."""
        facts: dict[str, Any] = {"digest": self.digest, "bytes": self.bytes, "path": self.path(images)}
        if self.arch:
            facts["arch"] = self.arch
        if self.others:
            facts["others"] = [each.facts(images) for each in self.others]
        return facts

    @property
    def name(self) -> str:
        """Its file name in the store."""
        return f"sha256-{self.digest}.sif"

    def path(self, images: str) -> str:
        """The image's path in a cluster's images folder."""
        return f"{images}/{self.name}"


class DigestMemory(Protocol):
    """Caches the sha256 of files on this machine by size and modification time."""

    def digest(self, path: Path) -> str | None:
        """The digest of an unchanged file; None for any other."""
        ...

    def set_digest(self, path: Path, digest: str) -> None:
        """Record the current digest of a file."""
        ...


def local_image(
    path: Path,
    memory: DigestMemory,
    *,
    runtime: str = DEFAULT_RUNTIME,
    hashed: Callable[[int], None] | None = None,
) -> Image:
    """The digest of an image file; an unchanged file is not hashed again.

    Args:
        path: an image on this machine.
        memory: the digest cache.
        runtime: the container runtime that is to start it.
        hashed: called with the number of bytes hashed so far.

    Raises:
        ImageError: the file is missing, or not an image of the runtime.
    """
    path = path.resolve()
    if not path.is_file():
        raise ImageError(
            f"{path}: no such image", hint="build one with `clusterkit build`, or set the cluster's `image`"
        )
    if not can_be_shown(path.name):
        raise ImageError(f"{path.name!a} contains characters that cannot be shown", hint="rename the image")
    arch = ""
    if form := runtime_of(runtime).image:
        with path.open("rb") as file:
            if file.read(form.offset + len(form.magic))[form.offset :] != form.magic:
                raise ImageError(f"{path}: not a {form.name} image", hint=form.convert)
        arch = form.architecture(path)
    digest = memory.digest(path)
    if digest is None:
        digest = sha256_of(path, hashed)
        memory.set_digest(path, digest)
    return Image(digest, path.stat().st_size, arch)


def sha256_of(path: Path, hashed: Callable[[int], None] | None = None) -> str:
    """The sha256 of a file, hexadecimal; `hashed` is called with the number of bytes hashed so far."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            if hashed:
                hashed(done)
    return digest.hexdigest()


def present(site: Site, image: Image) -> bool:
    """Whether the cluster has the complete image (by size: it was verified when published)."""
    from clusterkit.images.scripts import PRESENT

    asked = ([site.layout.images, each.digest, str(each.bytes)] for each in image.all)
    return all(
        site.transport.run(["sh", "-c", PRESENT, "sh", *arguments], check=False).returncode == 0
        for arguments in asked
    )


def must_be_writable(site: Site) -> None:
    """Raises ImageError if this user may not add images to the cluster's store."""
    from clusterkit.images.scripts import NOT_WRITABLE, WRITABLE

    answer = site.transport.run(["sh", "-c", WRITABLE, "sh", site.layout.images], check=False)
    if answer.returncode == NOT_WRITABLE:
        raise not_writable(site, answer, "you may not add images to it")


def not_writable(site: Site, answer: Completed, why: str) -> ImageError:
    """The error for an image store of another user's; the answer holds `ls -ld` of it."""
    mode, _, owner = [*answer.text.split(), "?", "?", "?"][:3]
    return ImageError(
        f"{site.transport.where}: {site.layout.images} belongs to {owner} ({mode}), and {why}",
        hint=f"ask {owner} to `clusterkit deploy` the image, or set `image_store` of "
        f"[clusters.{site.cluster.name}] to a folder of your own",
    )
