"""deploy: bring the image and the working tree to a cluster; only what is new travels.

A deploy is a plan that is carried out: what `--plan` shows is made by the same questions.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit import images, snapshots
from clusterkit.commands.deploy_plan import Plan, Rate
from clusterkit.errors import ImageError
from clusterkit.images import Image
from clusterkit.probes.space import spaces
from clusterkit.runs.ledger import Ledger
from clusterkit.site import Site, open_site
from clusterkit.snapshots import Allow, Snapshot, Standing
from clusterkit.transport.base import Progress, ProgressCallback

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.transport.ahead import LoginAhead

Bar = Callable[[str, int | None], AbstractContextManager[ProgressCallback]]
"""Opens a progress bar: label, total bytes."""

_PROBE_BYTES = 1 << 20
_RATE_FROM = 4 << 20
"""Bytes; a smaller transfer says more about round trips than about the line."""


def plan(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    *,
    login: LoginAhead,
    image: Path | None,
    bar: Bar,
    allow_large: Allow | None = None,
    verify_image: bool = False,
) -> Plan:
    """What `deploy` would do; nothing is changed on the cluster. Arguments and errors as `deploy`."""
    wishes = _Wishes(image, allow_large, verify_image, use=False)
    with _looked(settings, cluster, ledger, login, wishes, bar) as (site, found):
        return _weighed(site, found, ledger)


@contextmanager
def planning(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    *,
    login: LoginAhead,
    bar: Bar,
    cache: Path,
    allow_large: Allow | None = None,
) -> Iterator[tuple[Site, Plan]]:
    """The same, with the cluster still open for more questions.

    What is remembered of images goes to the folder `cache`, in the place of the project's.
    """
    wishes = _Wishes(None, allow_large, verify_image=False, use=False, cache=cache)
    with _looked(settings, cluster, ledger, login, wishes, bar) as (site, found):
        yield site, _weighed(site, found, ledger)


def _weighed(site: Site, found: Plan, ledger: Ledger) -> Plan:
    """With the room there, and the speed of the line."""
    remembered = ledger.rate(site.cluster.name)
    rate = Rate(*remembered) if remembered else None
    if rate is None and found.bytes_to_send:
        rate = _measured(site)
    return replace(found, spaces=spaces(site), rate=rate)


def deploy(
    settings: Settings,
    cluster: Cluster,
    ledger: Ledger,
    *,
    login: LoginAhead,
    image: Path | None,
    bar: Bar,
    allow_large: Allow | None = None,
    verify_image: bool = False,
) -> Plan:
    """Send the image and a snapshot of the working tree to a cluster, over one login.

    Where nothing is missing this takes one remote command; nothing is written then.

    Args:
        settings: of the project.
        cluster: where to.
        ledger: remembers digests and what was deployed.
        login: to that cluster; it goes on while the files here are read.
        image: a .sif to use instead of the configured one.
        bar: opens progress bars.
        allow_large: asked whether files over the size limit may travel; None refuses.
        verify_image: have the cluster read an image that is there already, and mend it if it is damaged.

    Returns:
        The plan that has been carried out.

    Raises:
        ImageError: no image is configured, or it is damaged, or something does not fit.
        TransportError: the cluster cannot be reached, or a transfer broke off; repeat it to go on.
    """
    wishes = _Wishes(image, allow_large, verify_image, use=True)
    with _looked(settings, cluster, ledger, login, wishes, bar) as (site, found):
        wanted, path = found.image, found.image_path
        if found.bytes_to_send:
            found = replace(found, spaces=spaces(site))
            if found.shortage:
                raise ImageError(
                    f"{site.transport.where}: no space left: {found.shortage}",
                    hint="free some space there (`clusterkit gc` removes what no run uses), "
                    "or set `root` or `image_store` of the cluster to a larger file system",
                )
        if wanted and not path and not found.image_plan.present:
            raise ImageError(
                f"{site.transport.where}: the image this project uses there is gone, and none is here",
                hint=f"`clusterkit build --on {cluster.name}` builds it again",
            )
        if wanted and path:
            if not found.image_plan.present:
                sent = _send_image(settings, site, path, wanted, found.image_plan, ledger, bar)
                found = replace(found, image_sent=sent)
            if ledger.deployment(cluster.name) != (wanted.digest, wanted.bytes):
                ledger.set_deployment(cluster.name, wanted.digest, wanted.bytes)
        _publish(site, found.standing, ledger, bar)
        return found


def send_snapshot(site: Site, snapshot: Snapshot, ledger: Ledger, bar: Bar) -> bool:
    """Bring a snapshot to a cluster; returns False when it was there already."""
    standing = snapshots.look(site, snapshot, basis=ledger.snapshot(site.cluster.name), use=True)
    _publish(site, standing, ledger, bar)
    return not standing.present


def hash_image(path: Path, ledger: Ledger, bar: Bar) -> Image:
    """The image by content, with a bar while it is hashed for the first time."""
    size = path.stat().st_size if path.is_file() else None
    with ExitStack() as stack:
        show: ProgressCallback | None = None

        def hashed(done: int) -> None:
            nonlocal show
            show = show or stack.enter_context(bar("hashing the image", size))
            show(Progress(done, size, 0.0))

        return images.local_image(path, ledger, hashed=hashed)


def excluded(settings: Settings) -> list[str]:
    """Patterns of what stays on this machine by the settings, the results among it."""
    project, folder = settings.project, settings.project_dir
    results = project.results
    own = [f"/{results.relative_to(folder).as_posix()}"] if results.is_relative_to(folder) else []
    return [*project.exclude, *own]


def take_snapshot(settings: Settings, allow: Allow | None = None, ledger: Ledger | None = None) -> Snapshot:
    """The working tree of the project, ready to be sent.

    Args:
        settings: of the project.
        allow: asked about files over the size limit; None refuses them.
        ledger: remembers the digests of files that do not change.
    """
    project = settings.project
    return snapshots.take(
        settings.project_dir,
        exclude=excluded(settings),
        include=project.include,
        max_file_size=project.max_file_size,
        allow=allow,
        memory=ledger.connection if ledger else None,
    )


def _wanted(
    cluster: Cluster, ledger: Ledger, image: Path | None, bar: Bar
) -> tuple[Image | None, Path | None]:
    if cluster.container == "none":
        if image:
            raise ImageError(
                f"cluster {cluster.name} runs programs without a container: no image is used there",
                hint="leave --image out, or choose another cluster with --cluster",
            )
        return None, None
    path = image or cluster.image
    if image is None and not (path and path.is_file()):
        deployed = ledger.deployment(cluster.name)  # `build --on` leaves its image there and none here
        if deployed:
            return Image(*deployed), None
    if path is None:
        raise ImageError(
            f"cluster {cluster.name} runs {cluster.container} and has no image",
            hint=f"`clusterkit build --on {cluster.name}` builds one there; or build one here, and name it "
            "as `image` of the cluster or with --image FILE",
        )
    return hash_image(path, ledger, bar), path


@dataclass(frozen=True)
class _Wishes:
    """What was asked for on the command line, and whether it is to be carried out."""

    image: Path | None
    allow_large: Allow | None
    verify_image: bool
    use: bool
    cache: Path | None = None
    """For chunk lists; None is the project's."""


@contextmanager
def _looked(
    settings: Settings, cluster: Cluster, ledger: Ledger, login: LoginAhead, wishes: _Wishes, bar: Bar
) -> Iterator[tuple[Site, Plan]]:
    """The open cluster and what was found there."""
    wanted, path = _wanted(cluster, ledger, wishes.image, bar)
    snapshot = take_snapshot(settings, wishes.allow_large, ledger)
    basis = ledger.snapshot(cluster.name)
    inquiries = [snapshots.inquiry(snapshot, basis=basis, use=wishes.use)]
    if wanted and path:
        inquiries.append(images.inquiry(wanted))
    with open_site(cluster, create=wishes.use, login=login, inquiries=inquiries) as site:
        image_plan = images.Plan(images.Way.PRESENT, 0, 0)
        if wanted and path:
            cache = wishes.cache or chunk_cache(settings)
            image_plan = images.plan(site, path, wanted, cache=cache, verify=wishes.verify_image)
        elif wanted and not images.present(site, wanted):
            raise ImageError(
                f"{site.transport.where}: image {wanted.digest[:12]} is not there any more",
                hint=f"`clusterkit build --on {cluster.name}` builds it again; or use --image FILE",
            )
        standing = snapshots.look(site, snapshot, basis=basis, use=wishes.use)
        yield (
            site,
            Plan(cluster.name, site.layout.root, wanted, path, image_plan, standing, trusted=site.notes),
        )


def _measured(site: Site) -> Rate:
    """The rate of a megabyte that nobody keeps."""
    start = time.monotonic()
    site.transport.run(["sh", "-c", "cat > /dev/null"], stdin=os.urandom(_PROBE_BYTES), timeout=None)
    return Rate(_PROBE_BYTES / (time.monotonic() - start), None)


def _send_image(
    settings: Settings,
    site: Site,
    path: Path,
    wanted: Image,
    image_plan: images.Plan,
    ledger: Ledger,
    bar: Bar,
) -> images.Sent:
    sent = images.upload(site, path, wanted, image_plan, cache=chunk_cache(settings), bar=bar)
    if sent.seconds and sent.bytes >= _RATE_FROM:
        ledger.set_rate(site.cluster.name, sent.bytes / sent.seconds, datetime.now(UTC).date().isoformat())
    return sent


def chunk_cache(settings: Settings) -> Path:
    """Where this project keeps chunk lists of images."""
    return settings.project_dir / ".clusterkit" / "chunks"


def _publish(site: Site, standing: Standing, ledger: Ledger, bar: Bar) -> None:
    start = time.monotonic()
    if not standing.present:
        with bar("code", standing.snapshot.bytes) as progress:
            sent = snapshots.publish(site, standing, progress=progress)
        if sent.bytes >= _RATE_FROM:
            rate = sent.bytes / (time.monotonic() - start)
            ledger.set_rate(site.cluster.name, rate, datetime.now(UTC).date().isoformat())
    if ledger.snapshot(site.cluster.name) != standing.snapshot.id:
        ledger.set_snapshot(site.cluster.name, standing.snapshot.id)
