"""submit: render, check, submit. Everything that can be wrong is found before the scheduler is asked."""

from __future__ import annotations

import dataclasses
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit import __version__, images, snapshots
from clusterkit.errors import ImageError
from clusterkit.images import Image
from clusterkit.ledger import Ledger, LedgerRun
from clusterkit.plan import program
from clusterkit.runspec import RunSpec, run_id, timestamp
from clusterkit.scheduler import JobState
from clusterkit.site import Layout, Site, open_site
from clusterkit.slurm.abilities import Choice
from clusterkit.slurm.script import JobScript, render
from clusterkit.snapshots import Allow, Snapshot
from clusterkit.submission import Outcome, request_json
from clusterkit.verbs.after import After, check_after, dependency
from clusterkit.verbs.deploy import Bar, hash_image, send_snapshot, take_snapshot
from clusterkit.verbs.handover import Parcel, hand_over, settle
from clusterkit.verbs.until_done import choose_way

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    cluster: Cluster
    profile: Profile
    name: str | None = None
    seed: int | None = None
    arguments: tuple[str, ...] = ()
    """After `--`: appended to the program's argv, to the letter."""
    overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unlock: tuple[str, ...] = ()
    sbatch: tuple[str, ...] = ()
    """`--option=value` texts that win over every configured option."""
    verify_image: bool = False
    """The job reads all of its image and compares the digest before it starts the container."""
    allow_large: Allow | None = None
    """Asked whether files over the size limit may travel; None refuses."""
    until_done: bool | None = None
    """Go on past the time limit; None is what the profile, or else the project, says."""
    after: tuple[After, ...] = ()
    """Runs that must end before it starts."""


@dataclass(frozen=True)
class Member:
    """What a run has that is submitted with others."""

    run_id: str
    group: Mapping[str, Any]
    """`id`, `index` and `size`."""
    sweep: Mapping[str, str]
    """Its values, by name."""
    env: Mapping[str, str]
    """More variables of the program."""
    previous: str | None = None
    """Run id of the pipeline's stage before."""


@dataclass(frozen=True)
class Prepared:
    """A run that could be submitted: what would be written, and where."""

    spec: RunSpec
    script: str
    job: JobScript
    snapshot: Snapshot
    image: Image | None
    run_dir: str
    choice: Choice | None
    """How it goes on past its time limit; None when it does not."""


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


def submit(settings: Settings, request: Request, ledger: Ledger, *, bar: Bar) -> Submitted:
    """Submit one run over one login.

    Raises:
        ConfigError, RecipeLockedError: the request is wrong; nothing was sent.
        ImageError: the cluster does not have the image.
        SchedulerError: the scheduler refused; its words are in the message and the run directory is gone.
        TransportError: the cluster cannot be reached.
    """
    check(settings, request)
    check_after(ledger, request.cluster, request.after, request.sbatch)
    image = image_of(request.cluster, ledger, bar)
    snapshot = take_snapshot(settings, request.allow_large, ledger)
    with open_site(request.cluster) as site:
        settled = settle_unclear(site, ledger)
        waiting = dependency(site, ledger, request.after)
        prepared = prepare(
            settings, request, site.layout, snapshot, image, way=lambda options: choose_way(site, options)
        )
        sent = bring(site, snapshot, image, ledger, bar)
        job_id = hand_over(site, ledger, _parcel(prepared, request.profile, waiting))
    spec = prepared.spec
    return Submitted(spec, job_id, prepared.run_dir, sent, prepared.job.options, prepared.choice, settled)


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
        ConfigError, RecipeLockedError, ImageError, TransportError: as `submit`.
    """
    check(settings, request)
    check_after(ledger, request.cluster, request.after, request.sbatch)
    cluster = request.cluster
    image = image_of(cluster, ledger, bar)
    snapshot = take_snapshot(settings, request.allow_large, ledger)
    if not goes_on(settings, request):
        return prepare(settings, request, layout_of(cluster), snapshot, image)
    with open_site(cluster, create=False) as site:
        return prepare(
            settings, request, site.layout, snapshot, image, way=lambda options: choose_way(site, options)
        )


def goes_on(settings: Settings, request: Request) -> bool:
    """Whether the run is to go on past its time limit."""
    if request.until_done is not None:
        return request.until_done
    profiles = request.profile.until_done
    return settings.project.until_done if profiles is None else profiles


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


def check(settings: Settings, request: Request, member: Member | None = None) -> Prepared:
    """Build everything once with stand-in paths: what is wrong with a request shows before any work.

    Raises:
        ConfigError, RecipeLockedError: as `submit`.
    """
    nowhere = Layout("/root", "/scratch")
    snapshot = Snapshot(snapshots.Tree(Path(), ()), snapshots.Tree(Path(), ()), 0)
    image = Image("0" * 64, 1) if request.cluster.container != "none" else None
    return prepare(settings, request, nowhere, snapshot, image, member)


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
        f"no image was deployed to {cluster.name}, and {cluster.image or 'none'} is configured",
        hint=f"run `clusterkit deploy --cluster {cluster.name} --image FILE.sif`",
    )


def prepare(
    settings: Settings,
    request: Request,
    layout: Layout,
    snapshot: Snapshot,
    image: Image | None,
    member: Member | None = None,
    *,
    way: Callable[[Sequence[str]], Choice] | None = None,
) -> Prepared:
    """A run with all that is written of it.

    Args:
        settings: of the project.
        request: what the user asked for.
        layout: the cluster's paths.
        snapshot: the code.
        image: the container's image, or None.
        member: what it has as one of a group.
        way: says, by its sbatch options, how a run goes on past its time limit; None leaves that open.
    """
    from clusterkit.config.placement import sbatch_options, warning

    cluster, profile = request.cluster, request.profile
    now = datetime.now(UTC)
    name = request.name or profile.name
    identity = member.run_id if member else run_id(name, now, secrets.token_hex(2))
    before = layout.run(member.previous) if member and member.previous else None
    run_dir = layout.run(identity)
    seed = profile.seed if request.seed is None else request.seed
    run_program = program(
        profile,
        own_program=settings.project.program,
        arguments=request.arguments,
        overrides=request.overrides,
        unlock=request.unlock,
        seed=seed,
        wandb=settings.project.wandb,
        run_id=identity,
        run_dir=run_dir,
    )
    code, bundle = snapshot.path(layout.snapshots), snapshot.bundle_path(layout.snapshots)
    past_limit = goes_on(settings, request)
    signal = warning(profile, trains=run_program.recipe is not None, until_done=past_limit)
    options = sbatch_options(
        cluster, profile, defaults={"signal": signal} if signal else {}, extra=request.sbatch
    )
    choice = way(options) if way and past_limit else None
    if choice:
        options = (*options, *choice.options)
    image_path = image.path(layout.images) if image else None
    spec = RunSpec(
        run_id=identity,
        name=name,
        created=timestamp(now),
        cluster=cluster.name,
        profile=profile.model_dump(mode="json"),
        recipe=run_program.recipe,
        argv=run_program.argv,
        env={
            **run_program.env,
            **(member.env if member else {}),
            **({"CLUSTERKIT_PREVIOUS_RUN_DIR": before} if before else {}),
        },
        workdir=f"{code}/project",
        python_path=(bundle,),
        snapshot=_snapshot_facts(snapshot),
        image={"digest": image.digest, "path": image_path, "bytes": image.bytes} if image else None,
        seed=seed,
        total_steps=profile.total_steps,
        time_limit_seconds=profile.time,
        wandb={
            "run_id": identity,
            "project": settings.project.wandb.project,
            "entity": settings.project.wandb.entity,
            "mode": settings.project.wandb.mode,
        },
        versions={"clusterkit": __version__, "python": platform.python_version()},
        project=settings.project.name,
        group=member.group if member else None,
        sweep=member.sweep if member else None,
    )
    job = JobScript(
        run_id=identity,
        job_name=identity,
        run_dir=run_dir,
        workdir=code,
        scratch_root=layout.scratch,
        cache_root=layout.cache,
        python=cluster.interpreter,
        options=options,
        container=cluster.container,
        image=image_path,
        image_bytes=image.bytes if image else None,
        image_digest=image.digest if image else None,
        verify_image=request.verify_image,
        binds=(*cluster.binds, f"{bundle}:{bundle}:ro", *((f"{before}:{before}:ro",) if before else ())),
        nv=profile.gpu_count > 0,
        prelude=cluster.prelude,
        until_done=choice.way if choice else None,
    )
    return Prepared(spec, render(job), job, snapshot, image, run_dir, choice)


def _snapshot_facts(snapshot: Snapshot) -> dict[str, Any]:
    git = snapshot.git
    return {
        "id": snapshot.id,
        "git_commit": git.commit,
        "git_branch": git.branch,
        "dirty": git.dirty,
        "diff": git.diff,
    }


def _parcel(prepared: Prepared, profile: Profile, waiting: tuple[str, ...]) -> Parcel:
    spec, folder = prepared.spec, f"runs/{prepared.spec.run_id}"
    options = (*prepared.job.options, *waiting)
    way = prepared.choice.way if prepared.choice else None
    request = request_json(0, "first", spec.created, options, until_done=way)
    files = {**run_files(prepared), f"{folder}/submissions/0/request.json": request}
    return Parcel((ledger_run(prepared, profile),), folder, files, options)


def ledger_run(prepared: Prepared, profile: Profile, part: int = 0) -> LedgerRun:
    """A run as the ledger shall know it, before there is a job.

    Args:
        prepared: the run.
        profile: of it.
        part: of its group's submissions, the one it is handed over with.
    """
    spec = prepared.spec
    return LedgerRun(
        run_id=spec.run_id,
        cluster=spec.cluster,
        name=spec.name,
        profile=profile.name,
        recipe=str((spec.recipe or {}).get("name", "")),
        seed=spec.seed or 0,
        job_id="",
        submitted=spec.created,
        run_dir=prepared.run_dir,
        total_steps=spec.total_steps or 0,
        state=JobState.PENDING,
        group=str((spec.group or {}).get("id", "")),
        until_done=prepared.choice.way if prepared.choice else "",
        part=part,
    )


def run_files(prepared: Prepared) -> dict[str, bytes | str]:
    """The files of a new run directory by path below the work root, without those of its submission."""
    from clusterkit.resources import launcher

    spec, folder = prepared.spec, f"runs/{prepared.spec.run_id}"
    return {
        f"{folder}/run.json": spec.to_json(),
        f"{folder}/launch.py": launcher(),
        f"{folder}/job.sh": prepared.script.encode(),
        f"{folder}/attempts/": "",
    }
