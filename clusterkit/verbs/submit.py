"""submit: render, check, submit. Everything that can be wrong is found before the scheduler is asked."""

from __future__ import annotations

import dataclasses
import platform
import secrets
from collections.abc import Mapping
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
    _check_request(settings, request)
    image = _image(request.cluster, ledger, bar)
    snapshot = take_snapshot(settings, request.allow_large, ledger)
    with open_site(request.cluster) as site:
        unclear = [
            run for run in ledger.runs(cluster=request.cluster.name) if run.state == JobState.SUBMITTING
        ]
        settled = settle(request.cluster, site.transport, ledger, unclear) if unclear else {}
        prepared = _prepare(settings, request, site.layout, snapshot, image, site=site)
        if image and not images.present(site, image):
            raise ImageError(
                f"{site.transport.where}: image {image.digest[:12]} is not there",
                hint=f"run `clusterkit deploy --cluster {request.cluster.name}` first",
            )
        sent = send_snapshot(site, snapshot, ledger, bar)
        job_id = hand_over(site, ledger, _parcel(prepared, request.profile))
    spec = prepared.spec
    return Submitted(spec, job_id, prepared.run_dir, sent, prepared.job.options, prepared.choice, settled)


def dry_run(settings: Settings, request: Request, ledger: Ledger, *, bar: Bar) -> Prepared:
    """What `submit` would do; nothing is changed on the cluster.

    It is logged in to only when its root depends on the account there (`~`, `$USER`), or to ask how the run
    can go on past its time limit.

    Raises:
        ConfigError, RecipeLockedError, ImageError, TransportError: as `submit`.
    """
    _check_request(settings, request)
    cluster = request.cluster
    image = _image(cluster, ledger, bar)
    snapshot = take_snapshot(settings, request.allow_large, ledger)
    roots = [path.rstrip("/") for path in (cluster.root, cluster.scratch_root, cluster.image_root)]
    if not any(mark in path for path in roots for mark in "$~") and not _goes_on(settings, request):
        return _prepare(settings, request, Layout(*roots), snapshot, image)
    with open_site(cluster, create=False) as site:
        return _prepare(settings, request, site.layout, snapshot, image, site=site)


def _goes_on(settings: Settings, request: Request) -> bool:
    """Whether the run is to go on past its time limit."""
    if request.until_done is not None:
        return request.until_done
    profiles = request.profile.until_done
    return settings.project.until_done if profiles is None else profiles


def _check_request(settings: Settings, request: Request) -> None:
    """Build everything once with stand-in paths: what is wrong with a request shows before any work."""
    nowhere = Layout("/root", "/scratch")
    snapshot = Snapshot(snapshots.Tree(Path(), ()), snapshots.Tree(Path(), ()), 0)
    image = Image("0" * 64, 1) if request.cluster.container != "none" else None
    _prepare(settings, request, nowhere, snapshot, image)


def _image(cluster: Cluster, ledger: Ledger, bar: Bar) -> Image | None:
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


def _prepare(
    settings: Settings,
    request: Request,
    layout: Layout,
    snapshot: Snapshot,
    image: Image | None,
    *,
    site: Site | None = None,
) -> Prepared:
    """All that would be written; without a connection it is not known yet how the run goes on."""
    from clusterkit.config.placement import sbatch_options, warning

    cluster, profile = request.cluster, request.profile
    now = datetime.now(UTC)
    name = request.name or profile.name
    identity = run_id(name, now, secrets.token_hex(2))
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
    goes_on = _goes_on(settings, request)
    signal = warning(profile, trains=run_program.recipe is not None, until_done=goes_on)
    options = sbatch_options(
        cluster, profile, defaults={"signal": signal} if signal else {}, extra=request.sbatch
    )
    choice = choose_way(site, options) if site and goes_on else None
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
        env=run_program.env,
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
        binds=(*cluster.binds, f"{bundle}:{bundle}:ro"),
        nv=profile.gpu_count > 0,
        wandb_login=run_program.env.get("WANDB_MODE") == "online",
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


def _parcel(prepared: Prepared, profile: Profile) -> Parcel:
    from clusterkit.resources import launcher

    spec, folder = prepared.spec, f"runs/{prepared.spec.run_id}"
    way = prepared.choice.way if prepared.choice else None
    request = request_json(0, "first", spec.created, prepared.job.options, until_done=way)
    run = LedgerRun(
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
        until_done=way or "",
    )
    files: dict[str, bytes | str] = {
        f"{folder}/run.json": spec.to_json(),
        f"{folder}/launch.py": launcher(),
        f"{folder}/job.sh": prepared.script.encode(),
        f"{folder}/attempts/": "",
        f"{folder}/submissions/0/request.json": request,
    }
    return Parcel((run,), folder, files, prepared.job.options)
