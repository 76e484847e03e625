"""Prepares a run: everything that is written of it and asked for it. No connection, but for `way`."""

from __future__ import annotations

import dataclasses
import platform
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit import __version__, snapshots
from clusterkit.backends.base import JobState
from clusterkit.backends.slurm.abilities import Choice
from clusterkit.backends.slurm.script import JobScript, render
from clusterkit.commands.after import After
from clusterkit.commands.own_script import check_script
from clusterkit.commands.own_words import check_arguments
from clusterkit.images import Image
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.program import program
from clusterkit.runs.spec import RunSpec, run_id, timestamp
from clusterkit.site import Layout
from clusterkit.snapshots import Allow, Snapshot

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster, Profile
    from clusterkit.config.settings import Settings


PREVIOUS = "CLUSTERKIT_PREVIOUS_RUN_DIR"
"""Where a program finds the run directory of the pipeline's stage before."""


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
    given: tuple[str, ...] = ()
    """Options that have changed the profile, as they were typed: `--time 4h`."""


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
    together: tuple[str, ...] = ()
    """Run ids of those that one process trains, its own among them; empty for a run with one of its own."""


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


def goes_on(settings: Settings, request: Request) -> bool:
    """Whether the run is to go on past its time limit."""
    if request.until_done is not None:
        return request.until_done
    profiles = request.profile.until_done
    return settings.project.until_done if profiles is None else profiles


def check(settings: Settings, request: Request, member: Member | None = None) -> Prepared:
    """Build everything once with stand-in paths: what is wrong with a request shows before any work.

    Raises:
        ConfigError, RecipeLockedError: as `submit`.
    """
    nowhere = Layout("/root", "/scratch")
    snapshot = Snapshot(snapshots.Tree(Path(), ()), snapshots.Tree(Path(), ()), 0)
    image = Image("0" * 64, 1) if request.cluster.container != "none" else None
    return prepare(settings, request, nowhere, snapshot, image, member)


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
    check_arguments(settings.project_dir, request.arguments, profile.program or settings.project.program)
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
    check_script(snapshot.project, run_program.argv)
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
            **({PREVIOUS: before} if before else {}),
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
        template=run_program.template,
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
        wandb_login=run_program.env.get("WANDB_MODE") == "online",
        together=tuple(layout.run(one) for one in member.together) if member else (),
        meeting=_meeting(layout, member) if member and cluster.kind == "local" else None,
        libraries=(bundle,),
        trust=cluster.trust,
        group=cluster.group,
    )
    return Prepared(spec, render(job), job, snapshot, image, run_dir, choice)


def _meeting(layout: Layout, member: Member) -> str | None:
    """Where the runs that one process trains meet on this machine, whose group has no job of its own."""
    if not member.together:
        return None
    return f"{layout.root}/groups/{member.group['id']}/together-{member.together[0].rpartition('-')[2]}"


def _snapshot_facts(snapshot: Snapshot) -> dict[str, Any]:
    git = snapshot.git
    return {
        "id": snapshot.id,
        "git_commit": git.commit,
        "git_branch": git.branch,
        "dirty": git.dirty,
        "diff": git.diff,
    }


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
