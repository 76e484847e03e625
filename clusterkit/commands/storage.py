"""storage list and storage prune: list a cluster's images with their users, and remove what no run uses."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.backends.jobs import Job, JobState
from clusterkit.errors import RunError
from clusterkit.images.inventory import (
    YOUNG_MINUTES,
    Inventory,
    StoredImage,
    remove,
    take_inventory,
    weigh_snapshots,
)
from clusterkit.probes import ask
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.record import RunRecord, records
from clusterkit.runs.roster import roster
from clusterkit.runs.selection import known_state, settled
from clusterkit.runs.state import fold
from clusterkit.site import Site, open_site
from clusterkit.transport.base import Bar

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster


@dataclass(frozen=True)
class ImageRow:
    """An image on a cluster and who uses it."""

    image: StoredImage
    runs: tuple[str, ...]
    """Runs whose run.json names it."""
    unfinished: tuple[str, ...]
    """The subset of `runs` that are waiting, running or may resume."""
    ours: bool
    """Whether this project deploys it."""


@dataclass(frozen=True)
class Young:
    """An image or snapshot sent or used so recently that a submission may be about to use it."""

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
    """Images, snapshots and uploads that no run uses."""

    images: tuple[StoredImage, ...]
    snapshots: tuple[str, ...]
    left_over: tuple[tuple[str, str], ...]
    """Uploads interrupted more than a day ago: kind and name."""
    bytes: int
    """Disk space that they use."""
    young: tuple[Young, ...] = ()
    """Unused, but too recent to remove."""

    @property
    def things(self) -> list[tuple[str, str]]:
        """Kind and name of each item to remove."""
        return [
            *(("image", image.name) for image in self.images),
            *(("snapshot", name) for name in self.snapshots),
            *((f"left-{kind}", name) for kind, name in self.left_over),
        ]


@dataclass(frozen=True)
class Garbage:
    """The result of pruning."""

    cluster: str
    rubbish: Rubbish
    removed: bool
    kept: frozenset[str] = frozenset()
    """Items not removed because their use began in the meantime."""


def list_images(cluster: Cluster, ledger: Ledger, *, bar: Bar) -> list[ImageRow]:
    """The images of a cluster, most recently used first.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    with open_site(cluster, create=False) as site, bar(f"images on {cluster.name}", None):
        found = take_inventory(site)
        unfinished = _unfinished(site, found, ledger)
    ours = _ours(cluster, ledger)
    return [
        ImageRow(
            image,
            runs := tuple(found.users(image.digest)),
            tuple(run for run in runs if run in unfinished),
            image.digest in ours and not image.damaged,
        )
        for image in sorted(found.images, key=lambda image: -image.used)
    ]


def prune(
    cluster: Cluster, ledger: Ledger, *, ended: bool, agrees: Callable[[str, Rubbish], bool], bar: Bar
) -> Garbage:
    """Remove images and snapshots that no run uses, and the remains of interrupted uploads.

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
            rubbish = _rubbish(site, ledger, ended=ended)
        if not rubbish.things or not agrees(cluster.name, rubbish):
            return Garbage(cluster.name, rubbish, removed=False)
        return Garbage(cluster.name, rubbish, removed=True, kept=frozenset(remove(site, rubbish.things)))


def _rubbish(site: Site, ledger: Ledger, *, ended: bool) -> Rubbish:
    """What no run uses; see `prune`."""
    found = take_inventory(site)
    if found.silent:
        raise RunError(
            f"{site.transport.where}: the run.json of {found.silent[0]} does not say what the run uses",
            hint=f"nothing was removed; check {site.layout.run(found.silent[0])}, or move it away",
        )
    keeping = _unfinished(site, found, ledger) if ended else set(found.uses)
    used = set().union(*(found.uses[run] for run in keeping)) | _ours(site.cluster, ledger)
    before = found.now - 60 * YOUNG_MINUTES
    unused = [image for image in found.images if image.digest not in used]
    images = [image for image in unused if image.used < before]
    idle = {name: made for name, made in found.snapshots.items() if name not in used}
    snapshots = [name for name, made in idle.items() if made < before]
    young = [
        *(Young("image", one.name, one.bytes, found.now - one.used) for one in unused if one not in images),
        *(Young("snapshot", name, None, found.now - idle[name]) for name in idle.keys() - set(snapshots)),
    ]
    size = sum(image.bytes for image in images) + sum(found.left_over.values())
    if snapshots:
        size += weigh_snapshots(site, found.snapshots.keys() - set(snapshots))
    return Rubbish(tuple(images), tuple(snapshots), tuple(found.left_over), size, tuple(young))


def _ours(cluster: Cluster, ledger: Ledger) -> set[str]:
    """Digests of this project's images: the configured one, as last hashed, and the last deployed one."""
    deployed = ledger.deployment(cluster.name)
    ours = {deployed[0]} if deployed else set()
    if cluster.image and cluster.image.is_file() and (digest := ledger.digest(cluster.image.resolve())):
        ours.add(digest)
    return ours


def _unfinished(site: Site, found: Inventory, ledger: Ledger) -> set[str]:
    """Runs that are waiting, running or may resume, including runs in an unknown state.

    What the ledger knows as ended is not read again, unless it was submitted again elsewhere.
    """
    known = {run.run_id: run for run in ledger.runs(cluster=site.cluster.name)}
    over = {run.run_dir: run for run in known.values() if run.run_id in found.uses and _over(run)}
    listing = roster(shlex.quote(site.layout.runs), ((path, run.submission) for path, run in over.items()))
    ended = {run.run_id for run in over.values()}
    folders = {run: site.layout.run(run) for run in found.uses if run not in ended}
    files = records(list(folders.values()))
    answers = ask(site.transport, listing, files, timeout=None)
    read = answers.of(files)
    if again := answers.of(listing).again:
        more = records(again)
        read.update(ask(site.transport, more, timeout=None).of(more))
        folders |= {over[path].run_id: path for path in again}
    ids = {
        run: (known[run].job_id if run in known else "") or _last_job_id(read[folder])
        for run, folder in folders.items()
    }
    asked = [job_id for job_id in ids.values() if job_id]
    jobs: dict[str, Job] = {}
    if asked:
        query = backend_of(site.cluster).query(asked)
        jobs = dict(ask(site.transport, query).of(query).jobs)
    unfinished = set()
    for run, folder in folders.items():
        job_id = ids[run]
        state = fold(read[folder], jobs.get(job_id) if job_id else None).state
        if job_id is None or state.active or state in (JobState.UNKNOWN, JobState.PREEMPTED):
            unfinished.add(run)
    return unfinished


def _over(run: LedgerRun) -> bool:
    """Whether the ledger knows that a run has ended for good."""
    return settled(run) and known_state(run).state is not JobState.PREEMPTED


def _last_job_id(record: RunRecord) -> str | None:
    start = record.started.start if record.started else None
    return str((start or {}).get("job_id") or "") or None
