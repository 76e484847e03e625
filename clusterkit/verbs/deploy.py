"""deploy: bring the image and the working tree to a cluster; only what is new travels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit import images, snapshots
from clusterkit.errors import ImageError
from clusterkit.images import Image, Sent
from clusterkit.ledger import Ledger
from clusterkit.site import open_site
from clusterkit.snapshots import Snapshot
from clusterkit.transport.base import Progress, ProgressCallback

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

Bar = Callable[[str, int | None], AbstractContextManager[ProgressCallback]]
"""Opens a progress bar: label, total bytes."""


@dataclass(frozen=True)
class Deployed:
    """What a deploy found and sent."""

    cluster: str
    root: str
    image: Image | None
    image_path: Path | None
    image_sent: Sent | None
    """What its upload took; None without an image."""
    snapshot: Snapshot
    snapshot_sent: bool
    free_bytes: int | None


def deploy(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    *,
    image: Path | None,
    bar: Bar,
    verify_image: bool = False,
) -> Deployed:
    """Send the image and a snapshot of the working tree to a cluster, over one login.

    Args:
        settings: of the project.
        cluster: where to.
        ledger: remembers digests and what was deployed.
        image: a .sif to use instead of the configured one.
        bar: opens progress bars.
        verify_image: have the cluster read an image that is there already, and mend it if it is damaged.

    Raises:
        ImageError: no image is configured, or it is damaged or does not fit.
        TransportError: the cluster cannot be reached, or a transfer broke off; repeat it to go on.
    """
    image_path = image or cluster.image
    wanted = None
    if cluster.container != "none":
        if image_path is None:
            raise ImageError(
                f"cluster {cluster.name} runs {cluster.container} and has no image",
                hint="build one with `clusterkit build`, then set `image` of the cluster or use --image FILE",
            )
        wanted = hash_image(image_path, ledger, bar)
    snapshot = take_snapshot(settings)
    with open_site(cluster) as site:
        image_sent = None
        if wanted and image_path:
            cache = settings.project_dir / ".clusterkit" / "chunks"
            with bar("looking at the image there", None):
                todo = images.plan(site, image_path, wanted, cache=cache, verify=verify_image)
            image_sent = images.upload(site, image_path, wanted, todo, cache=cache, bar=bar)
            ledger.set_deployment(cluster.name, wanted.digest, wanted.bytes)
        with bar("code", snapshot.bytes) as progress:
            snapshot_sent = snapshots.publish(site, snapshot, progress=progress)
        return Deployed(
            cluster.name,
            site.layout.root,
            wanted,
            image_path if wanted else None,
            image_sent,
            snapshot,
            snapshot_sent,
            site.free_bytes,
        )


def hash_image(path: Path, ledger: Ledger, bar: Bar) -> Image:
    """The image by content, with a bar while it is hashed for the first time."""
    size = path.stat().st_size if path.is_file() else None
    with bar("hashing the image", size) as progress:
        return images.local_image(path, ledger, hashed=lambda done: progress(Progress(done, size, 0.0)))


def take_snapshot(settings: Settings) -> Snapshot:
    """The working tree of the project, ready to be sent."""
    project, folder = settings.project, settings.project_dir
    exclude = list(project.exclude)
    if project.results.is_relative_to(folder):
        exclude.append(f"/{project.results.relative_to(folder).as_posix()}")
    return snapshots.take(folder, exclude=exclude, max_file_size=project.max_file_size)
