"""submit: render, check, submit. Everything that can be wrong is found before the scheduler is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit import images
from clusterkit.backends.base import JobState
from clusterkit.backends.slurm.abilities import Choice
from clusterkit.commands.after import check_after, dependency
from clusterkit.commands.again import words_of
from clusterkit.commands.deploy import Bar, hash_image, send_snapshot, take_snapshot
from clusterkit.commands.fitting import check_fit
from clusterkit.commands.handover import Parcel, hand_over, settle
from clusterkit.commands.prepare import Prepared, Request, check, goes_on, ledger_run, prepare, run_files
from clusterkit.commands.until_done import choose_way
from clusterkit.errors import ImageError
from clusterkit.images import Image
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.program import keeps_seed
from clusterkit.runs.spec import RunSpec
from clusterkit.runs.submission import Outcome, request_json
from clusterkit.site import Layout, Site, open_site
from clusterkit.snapshots import Snapshot

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Submitted:
    """A run the scheduler has accepted."""

    spec: RunSpec
    job_id: str
    run_dir: str
    snapshot_sent: bool
    options: tuple[str, ...] = ()
    """Of sbatch."""
    choice: Choice | None = None
    """How it goes on past its time limit."""
    settled: Mapping[str, Outcome] = dataclasses.field(default_factory=dict)
    """Earlier runs whose submission was interrupted, and what has come of it, by run id."""
    untold: bool = False
    """The seed that was asked for is only in the program's environment."""
    lacking: tuple[str, ...] = ()
    """What it requests and the machine lacks."""
    trusted: tuple[str, ...] = ()
    """A line for each folder there that a user whom the settings trust could change."""


def submit(settings: Settings, request: Request, ledger: Ledger, *, bar: Bar) -> Submitted:
    """Submit one run over one login.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong; nothing was sent.
        ImageError: the cluster does not have the image.
        SchedulerError: it can never run there; or the scheduler refused, its words are in the message and the
            run directory is gone.
        TransportError: the cluster cannot be reached.
    """
    checked = check(settings, request)
    check_after(ledger, request.cluster, request.after, request.sbatch)
    lacking = check_fit(settings, request.cluster, [(request.profile, checked.spec.argv)])
    image = image_of(request.cluster, ledger, bar)
    snapshot = take_snapshot(settings, request.allow_large, ledger)
    with open_site(request.cluster) as site:
        settled = settle_unclear(site, ledger)
        waiting = dependency(site, ledger, request.after)
        prepared = prepare(
            settings, request, site.layout, snapshot, image, way=lambda options: choose_way(site, options)
        )
        sent = bring(site, snapshot, image, ledger, bar)
        job_id = hand_over(site, ledger, _parcel(prepared, request, waiting))
    spec = prepared.spec
    return Submitted(
        spec,
        job_id,
        prepared.run_dir,
        sent,
        prepared.job.options,
        prepared.choice,
        settled,
        untold=request.seed is not None and keeps_seed(spec.argv, spec.template),
        lacking=lacking,
        trusted=site.notes,
    )


def settle_unclear(site: Site, ledger: Ledger) -> dict[str, Outcome]:
    """What has come of earlier submissions to this cluster that were interrupted, by run id."""
    unclear = [run for run in ledger.runs(cluster=site.cluster.name) if run.state == JobState.SUBMITTING]
    return settle(site.cluster, site.transport, ledger, unclear) if unclear else {}


def bring(site: Site, snapshot: Snapshot, image: Image | None, ledger: Ledger, bar: Bar) -> bool:
    """See that the image is there, and send the snapshot; returns False when that was there already.

    Raises:
        ImageError: the cluster does not have the image.
    """
    if image and not images.present(site, image):
        raise ImageError(
            f"{site.transport.where}: image {image.digest[:12]} is not there",
            hint=f"run `clusterkit deploy --cluster {site.cluster.name}` first",
        )
    return send_snapshot(site, snapshot, ledger, bar)


def dry_run(settings: Settings, request: Request, ledger: Ledger, *, bar: Bar) -> Prepared:
    """What `submit` would do; nothing is changed on the cluster.

    It is logged in to only when its root depends on the account there (`~`, `$USER`), or to ask how the run
    can go on past its time limit.

    Raises:
        ConfigError, RecipeLockedError, ImageError, SchedulerError, TransportError: as `submit`.
    """
    checked = check(settings, request)
    check_after(ledger, request.cluster, request.after, request.sbatch)
    cluster = request.cluster
    check_fit(settings, cluster, [(request.profile, checked.spec.argv)])
    image = image_of(cluster, ledger, bar)
    snapshot = take_snapshot(settings, request.allow_large, ledger)
    if not goes_on(settings, request):
        return prepare(settings, request, layout_of(cluster), snapshot, image)
    with open_site(cluster, create=False) as site:
        return prepare(
            settings, request, site.layout, snapshot, image, way=lambda options: choose_way(site, options)
        )


def layout_of(cluster: Cluster) -> Layout:
    """The paths of a cluster's work root; a login is only needed when they depend on the account there.

    Raises:
        TransportError: it cannot be reached.
    """
    roots = [path.rstrip("/") for path in (cluster.root, cluster.scratch_root, cluster.image_root)]
    if not any(mark in path for path in roots for mark in "$~"):
        return Layout(*roots)
    with open_site(cluster, create=False) as site:
        return site.layout


def image_of(cluster: Cluster, ledger: Ledger, bar: Bar) -> Image | None:
    """The image runs use there; None without a container.

    Raises:
        ImageError: none is configured, and none was deployed.
    """
    if cluster.container == "none":
        return None
    if cluster.image and cluster.image.is_file():
        return hash_image(cluster.image, ledger, bar)
    deployed = ledger.deployment(cluster.name)
    if deployed:
        return Image(*deployed)
    raise ImageError(
        f"no image was deployed to {cluster.name}, and "
        + (f"{cluster.image} is not there" if cluster.image else "none is configured"),
        hint=f"`clusterkit build` makes one and `clusterkit deploy --cluster {cluster.name}` sends it; "
        f"or `clusterkit build --on {cluster.name}`",
    )


def _parcel(prepared: Prepared, request: Request, waiting: tuple[str, ...]) -> Parcel:
    spec, folder = prepared.spec, f"runs/{prepared.spec.run_id}"
    options = (*prepared.job.options, *waiting)
    way = prepared.choice.way if prepared.choice else None
    wanted = request_json(0, "first", spec.created, options, until_done=way, command=words_of(request))
    files = {**run_files(prepared), f"{folder}/submissions/0/request.json": wanted}
    return Parcel((ledger_run(prepared, request.profile),), folder, files, options)
