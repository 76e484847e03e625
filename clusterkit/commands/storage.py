"""storage list and storage prune: list a cluster's stores with their users, and remove what no run uses."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from clusterkit.backends.jobs import JobState
from clusterkit.errors import RunError
from clusterkit.images.inventory import (
    YOUNG_MINUTES,
    Inventory,
    StoredImage,
    take_inventory,
    weigh_snapshots,
)
from clusterkit.images.removal import remove
from clusterkit.probes import ask
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.observe import Observer
from clusterkit.runs.roster import roster
from clusterkit.runs.selection import known_state, settled
from clusterkit.runs.state import RunState
from clusterkit.site import Site, open_site
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


@dataclass(frozen=True)
class ImageRow:
    """An image on a cluster and who uses it."""

    image: StoredImage
    runs: tuple[str, ...]
    """Runs whose run.json names it; by run directory in another work root."""
    unfinished: tuple[str, ...]
    """The subset of `runs` that are waiting, running or may resume."""
    ours: bool
    """Whether this project deploys it."""


@dataclass(frozen=True)
class EnvironmentRow:
    """A Python environment on a cluster and who uses it."""

    digest: str
    bytes: int
    """Zero before it is built."""
    used: int
    """When it was made or last used in a submission, Unix seconds."""
    runs: tuple[str, ...]
    unfinished: tuple[str, ...]
    """The subset of `runs` that are waiting, running or may resume."""


@dataclass(frozen=True)
class Young:
    """An image, snapshot or environment sent or used so recently that a submission may be about to use it."""

    kind: str
    name: str
    bytes: int | None
    """None for a snapshot, whose files may be shared."""
    age: int
    """Seconds since its upload or last use."""

    @property
    def left(self) -> int:
        """Seconds until it may be removed."""
        return max(0, 60 * YOUNG_MINUTES - self.age)


@dataclass(frozen=True)
class Rubbish:
    """Images, snapshots, environments and uploads that no run uses."""

    images: tuple[StoredImage, ...]
    snapshots: tuple[str, ...]
    left_over: tuple[tuple[str, str], ...]
    """Uploads and builds interrupted more than a day ago: kind and name."""
    bytes: int
    """Disk space that they use."""
    young: tuple[Young, ...] = ()
    """Unused, but too recent to remove."""
    kept_images: tuple[StoredImage, ...] = ()
    """Images that no run in sight uses, but that a run out of sight may use."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """Links in the store -> work roots of this user that use it and cannot be read."""
    store: str = ""
    """The path of the image store."""
    environments: Mapping[str, int] = field(default_factory=dict)
    """Bytes by digest."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.images or self.snapshots or self.environments or self.left_over)


@dataclass(frozen=True)
class Garbage:
    """The result of pruning."""

    cluster: str
    rubbish: Rubbish
    removed: bool
    kept: frozenset[str] = frozenset()
    """Items not removed because their use began in the meantime."""


def list_stores(cluster: Cluster, ledger: Ledger, *, bar: Bar) -> tuple[list[ImageRow], list[EnvironmentRow]]:
    """Returns the images and the environments of a cluster, most recently used first.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    with open_site(cluster, create=False) as site, bar(f"images on {cluster.name}", None):
        found = take_inventory(site)
        ended = _ended(site, found.uses, ledger)
    ours = _ours(cluster, ledger)
    images = [
        ImageRow(image, *_users(found, image.digest, ended), image.digest in ours and not image.damaged)
        for image in sorted(found.images, key=lambda image: -image.used)
    ]
    environments = [
        EnvironmentRow(digest, found.weights.get(digest, 0), used, *_users(found, digest, ended))
        for digest, used in sorted(found.environments.items(), key=lambda item: -item[1])
    ]
    return images, environments


def _users(found: Inventory, digest: str, ended: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the runs that use a thing, and those of them that have not ended."""
    runs = tuple(found.users(digest))
    return runs, tuple(run for run in runs if run not in ended)


def prune(
    cluster: Cluster, ledger: Ledger, *, ended: bool, agrees: Callable[[str, Rubbish], bool], bar: Bar
) -> Garbage:
    """Removes images, snapshots and environments that no run uses, and what interrupted uploads have left.

    Images that a run out of sight may use stay: those that other users may read, and all if another work root
    of this user cannot be read.

    Args:
        cluster: to clean up.
        ledger: source of job ids and of what this project deploys.
        ended: whether items used only by ended runs are removed, too.
        agrees: called with the cluster's name and the items; nothing is removed unless it returns true.
        bar: opens progress bars.

    Raises:
        RunError: a run's run.json on the cluster does not show what it uses.
        TransportError: the cluster cannot be reached, or something could not be removed.
    """
    with open_site(cluster, create=False) as site:
        with bar(f"images and code on {cluster.name}", None):
            found = take_inventory(site)
        if found.silent:
            folder = _folder(site, found.silent[0])
            raise RunError(
                f"{site.transport.where}: the run.json of {found.silent[0]} does not say what the run uses",
                hint=f"nothing was removed; check {folder}, or move it away",
            )
        with bar(f"runs on {cluster.name}", None):
            over = _ended(site, found.uses, ledger) if ended else frozenset()
            rubbish = _rubbish(site, found, over, _ours(cluster, ledger))
        if rubbish.empty or not agrees(cluster.name, rubbish):
            return Garbage(cluster.name, rubbish, removed=False)
        things = [
            *(("image", image.used, image.name) for image in rubbish.images),
            *(("snapshot", found.snapshots[name], name) for name in rubbish.snapshots),
            *(("environment", found.environments[name], name) for name in rubbish.environments),
            *(
                (f"left-{kind}", 0, name)
                for kind, name in rubbish.left_over
                if name.split("/")[0] not in rubbish.environments
            ),
        ]
        return Garbage(cluster.name, rubbish, removed=True, kept=frozenset(remove(site, things, over)))


def _rubbish(site: Site, found: Inventory, ended: Collection[str], ours: Collection[str]) -> Rubbish:
    """Returns what nobody needs, if these runs count as ended and these images are deployed."""
    needing = {run: named for run, named in found.uses.items() if run not in ended}
    in_use = found.building.union(ours, *needing.values())
    here = set().union(*(named for run, named in needing.items() if "/" not in run))
    unused = [image for image in found.images if image.digest not in in_use]
    kept = [image for image in unused if image.shared or found.lost]
    before = found.now - 60 * YOUNG_MINUTES
    removable = [image for image in unused if image not in kept]
    images = [image for image in removable if image.used < before]
    idle = {name: made for name, made in found.snapshots.items() if name not in here}
    snapshots = [name for name, made in idle.items() if made < before]
    unneeded = {name: made for name, made in found.environments.items() if name not in here | found.building}
    environments = {name: found.weights.get(name, 0) for name, made in unneeded.items() if made < before}
    young = [
        *(
            Young("image", image.name, image.bytes, found.now - image.used)
            for image in removable
            if image not in images
        ),
        *(Young("snapshot", name, None, found.now - idle[name]) for name in idle.keys() - set(snapshots)),
        *(
            Young("environment", name, found.weights.get(name, 0), found.now - unneeded[name])
            for name in unneeded.keys() - environments.keys()
        ),
    ]
    size = sum(image.bytes for image in images) + sum(environments.values())
    size += sum(size for (_, name), size in found.left_over.items() if name.split("/")[0] not in environments)
    if snapshots:
        size += weigh_snapshots(site, found.snapshots.keys() - set(snapshots))
    return Rubbish(
        tuple(images),
        tuple(snapshots),
        tuple(found.left_over),
        size,
        tuple(young),
        tuple(kept),
        found.lost,
        site.layout.images,
        environments,
    )


def _ours(cluster: Cluster, ledger: Ledger) -> set[str]:
    """Digests of this project's images: the configured ones, as last hashed, and the last deployed ones."""
    here = filter(None, (ledger.digest(path.resolve()) for path in cluster.image_files))
    return {*here, *(image.digest for image in ledger.deployed(cluster.name))}


def _ended(site: Site, runs: Collection[str], ledger: Ledger) -> frozenset[str]:
    """Returns the runs, as in `Inventory.uses`, that are known to have ended for good.

    A run of another project or work root counts only if its files or the scheduler show its end.
    """
    if not runs:
        return frozenset()
    known = {run.run_dir: run for run in ledger.runs()}
    folders = {name: _folder(site, name) for name in runs}
    rows = {name: known.get(folder) or _stranger(site, folder) for name, folder in folders.items()}
    final = {name: run for name, run in rows.items() if settled(run) and _over(known_state(run))}
    listing = roster(shlex.quote(site.layout.runs), ((run.run_dir, run.submission) for run in final.values()))
    again = ask(site.transport, listing, timeout=None).of(listing).again if final else ()
    ended = {name for name, run in final.items() if run.run_dir not in again}
    asked = {name: run for name, run in rows.items() if name not in ended}
    observer = Observer(site.cluster, site.transport)
    states = observer.ask(list(asked.values()))[0] if asked else []
    for (name, run), state in zip(asked.items(), states, strict=True):
        ours = run.run_dir in known and run.cluster == site.cluster.name and observer.trouble is None
        if observer.proves_end(run, state) or (ours and run.job_id and _over(state)):
            ended.add(name)
    return frozenset(ended)


def _folder(site: Site, name: str) -> str:
    """Returns the run directory of a run, as named in `Inventory.uses`."""
    return name if "/" in name else site.layout.run(name)


def _over(state: RunState) -> bool:
    return not state.state.active and state.state not in (JobState.UNKNOWN, JobState.PREEMPTED)


def _stranger(site: Site, run_dir: str) -> LedgerRun:
    """Returns a row for a run that this project's ledger does not know; its files tell of its jobs."""
    run_id = run_dir.rpartition("/")[2]
    return LedgerRun(
        run_id=run_id,
        cluster=site.cluster.name,
        name="",
        profile="",
        recipe="",
        seed=0,
        job_id="",
        submitted="",
        run_dir=run_dir,
        total_steps=0,
        state=JobState.DEFERRED,
        group=run_id.rpartition("-")[0],  # if it has one (`member_id`)
    )
