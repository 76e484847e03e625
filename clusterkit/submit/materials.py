"""Sends a run's image and the snapshot of the working tree to a cluster."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit import snapshots
from clusterkit.errors import ImageError
from clusterkit.images.image import Image, local_image
from clusterkit.images.image import present as image_present
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.secret_values import SecretValues
from clusterkit.site import Layout, Site, open_site
from clusterkit.snapshots import Allow, Snapshot, Standing
from clusterkit.submit.shown import refuse_in_files, refuse_shown
from clusterkit.transport.base import Bar, ProgressCallback, TransferProgress

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

RATE_FROM = 4 << 20
"""Bytes; smaller transfers measure round trips rather than bandwidth."""

IMPORT = "make one with `enroot import`, and name it as `image` of the cluster or with `deploy --image FILE`"
"""Hint for a cluster with Pyxis that has no image."""


def image_of(cluster: Cluster, ledger: Ledger, bar: Bar) -> Image | None:
    """Returns the image of new runs on a cluster; None if the cluster uses none of its store.

    Raises:
        ImageError: no image is configured and none was deployed.
    """
    if not cluster.stores_image:
        return None
    if cluster.image and cluster.image.is_file():
        return hash_image(cluster.image, ledger, bar, runtime=cluster.container)
    deployed = ledger.deployment(cluster.name)
    if deployed:
        return Image(*deployed)
    raise ImageError(
        f"no image was deployed to {cluster.name}, and "
        + (f"{cluster.image} is not there" if cluster.image else "none is configured"),
        hint=IMPORT
        if cluster.container == "pyxis"
        else f"`clusterkit build` makes one and `clusterkit deploy --cluster {cluster.name}` sends it; "
        f"or `clusterkit build --cluster {cluster.name}`",
    )


def layout_of(cluster: Cluster) -> Layout:
    """Returns the paths of a cluster's work root; logs in only if they depend on the account.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    roots = [path.rstrip("/") for path in (cluster.root, cluster.scratch_root, cluster.image_root)]
    if not any(mark in path for path in roots for mark in "$~"):
        return Layout(*roots)
    with open_site(cluster, create=False) as site:
        return site.layout


def must_have_image(site: Site, image: Image | None, *, hint: str) -> None:
    """Raises ImageError, with the hint, if the cluster does not have the image."""
    if image and not image_present(site, image):
        raise ImageError(f"{site.transport.where}: image {image.digest[:12]} is not there", hint=hint)


def send_snapshot(site: Site, snapshot: Snapshot, ledger: Ledger, bar: Bar) -> bool:
    """Sends a snapshot to a cluster; returns False if the cluster already had it."""
    standing = snapshots.look(site, snapshot, basis=ledger.snapshot(site.cluster.name), use=True)
    publish_snapshot(site, standing, ledger, bar)
    return not standing.present


def hash_image(path: Path, ledger: Ledger, bar: Bar, *, runtime: str = "apptainer") -> Image:
    """Returns the image with its digest; shows a bar while hashing it for the first time."""
    size = path.stat().st_size if path.is_file() else None
    with ExitStack() as stack:
        show: ProgressCallback | None = None

        def hashed(done: int) -> None:
            nonlocal show
            show = show or stack.enter_context(bar("hashing the image", size))
            show(TransferProgress(done, size, 0.0))

        return local_image(path, ledger, runtime=runtime, hashed=hashed)


def excluded(settings: Settings) -> list[str]:
    """Returns patterns of the files that the settings exclude from snapshots, including the results."""
    project, folder = settings.project, settings.project_dir
    results = project.results
    own = [f"/{results.relative_to(folder).as_posix()}"] if results.is_relative_to(folder) else []
    return [*project.exclude, *own]


def take_snapshot(
    settings: Settings, secrets: SecretValues, allow: Allow | None = None, ledger: Ledger | None = None
) -> Snapshot:
    """Takes a snapshot of the project's working tree.

    Args:
        settings: the project's settings.
        secrets: those whose values are known; they may not be in what is sent.
        allow: called about files over the size limit; None refuses them.
        ledger: caches the digests of unchanged files.

    Raises:
        ConfigError: a file or the git branch's name contains a secret's value.
        ClusterkitError: as `snapshots.take`.
    """
    project = settings.project
    snapshot = snapshots.take(
        settings.project_dir,
        exclude=excluded(settings),
        include=project.include,
        max_file_size=project.max_file_size,
        allow=allow,
        look=partial(refuse_in_files, secrets),
        memory=ledger.connection if ledger else None,
    )
    refuse_shown(secrets, git={"branch": snapshot.git.branch})
    return snapshot


def chunk_cache(settings: Settings) -> Path:
    """Returns the folder of this project's chunk lists of images."""
    return settings.project_dir / ".clusterkit" / "chunks"


def publish_snapshot(site: Site, standing: Standing, ledger: Ledger, bar: Bar) -> None:
    """Sends the missing parts of a snapshot and records it as the last one sent."""
    start = time.monotonic()
    if not standing.present:
        with bar("code", standing.snapshot.bytes) as progress:
            sent = snapshots.publish(site, standing, progress=progress)
        if sent.bytes >= RATE_FROM:
            rate = sent.bytes / (time.monotonic() - start)
            ledger.set_rate(site.cluster.name, rate, datetime.now(UTC).date().isoformat())
    if ledger.snapshot(site.cluster.name) != standing.snapshot.id:
        ledger.set_snapshot(site.cluster.name, standing.snapshot.id)


def snapshots_home(settings: Settings) -> Path:
    """Returns the folder of snapshots on this machine."""
    return settings.project_dir / ".clusterkit" / "snapshots"
