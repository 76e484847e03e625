"""rerun: a new run with the code, the image and the arguments of an earlier one, or of an export."""

from __future__ import annotations

import json
import platform
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit import __version__, images, snapshots
from clusterkit.backends.base import JobState
from clusterkit.backends.slurm.abilities import Choice
from clusterkit.backends.slurm.script import render
from clusterkit.commands.deploy import Bar
from clusterkit.commands.export import SUFFIXES, snapshots_home
from clusterkit.commands.fitting import check_fit
from clusterkit.commands.handover import Parcel, hand_over
from clusterkit.commands.recorded import Recorded, read_recorded
from clusterkit.commands.resubmission import (
    ResumeRequest,
    bundle_of,
    job_of,
    moved,
    options_of,
    recorded_profile,
)
from clusterkit.commands.until_done import choose_way
from clusterkit.errors import ConfigError, ImageError, RunError
from clusterkit.folders import work_folder
from clusterkit.images import Image
from clusterkit.resources import launcher
from clusterkit.runs import program as plan
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.run_dir import newest_request, read_run_dir
from clusterkit.runs.spec import run_id, timestamp
from clusterkit.runs.submission import request_json
from clusterkit.sharing import archive
from clusterkit.sharing.contents import snapshot_ids
from clusterkit.sharing.received import check_document, describes, sizes_of
from clusterkit.site import Site, open_site
from clusterkit.snapshots.copy import check, fetch
from clusterkit.units import format_size

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

_SWEPT_SEED = "CLUSTERKIT_SWEEP_SEED"
"""Where a program of one's own reads its seed, when it was one of several."""
_THERE = 'test -d "$1" && touch -c "$1" 2>/dev/null; test -d "$1"'
"""Whether a snapshot is there; it is young again then, so that gc leaves it alone."""


@dataclass(frozen=True)
class RerunRequest:
    """What shall be different; None leaves a thing as it was."""

    changes: ResumeRequest
    name: str | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Rerun:
    """A run the scheduler has accepted."""

    run: LedgerRun
    job_id: str
    of: str
    """Id of the run it repeats."""
    choice: Choice | None
    untold: bool = False
    """The seed that was asked for is only in the program's environment."""
    trusted: tuple[str, ...] = ()
    """A line for each folder there that a user whom the settings trust could change."""


@dataclass(frozen=True)
class _Origin:
    """What is repeated."""

    recorded: Recorded
    copy_of: Callable[[str], Path]
    """A snapshot by its id, as a folder here."""
    image: Path | None = None
    """The image's file, where the archive has it."""


def rerun(settings: Settings, request: RerunRequest, ledger: Ledger, name: str, *, bar: Bar) -> Rerun:
    """Submit a run once more, as a new one.

    The code is that of the run's snapshot, not the working tree; what of it, and of an image that came in an
    archive, the cluster does not have is brought there.

    Args:
        settings: of the project.
        request: what shall be different.
        ledger: knows the runs.
        name: a run, a folder with one, or an archive that `export` has made.
        bar: opens progress bars.

    Raises:
        RunError: the run is not known, its code is gone, or the archive is damaged.
        ConfigError: the request is wrong.
        ImageError: the cluster does not have the image.
        SchedulerError: the scheduler refused; nothing is left of the new run.
        TransportError: the cluster cannot be reached.
    """
    with ExitStack() as stack:
        site_of = cache(lambda cluster: stack.enter_context(open_site(settings.cluster(cluster))))
        packed = name.endswith(SUFFIXES) or Path(name).is_file()
        if packed:
            home = settings.project_dir / ".clusterkit"
            origin = _unpacked(Path(name), lambda: stack.enter_context(work_folder(home)))
        else:
            origin = _known(settings, ledger, name, site_of)
        recorded = origin.recorded
        before = recorded.run.cluster if recorded.run else str(recorded.document.get("cluster"))
        # The names of clusters in an archive are those of whoever made it.
        wanted = request.changes.cluster or (None if packed else before)
        site = site_of(settings.cluster(wanted).name)
        _bring_image(settings, site, recorded.document, origin.image, bar)
        for identity in snapshot_ids(recorded.document):
            there = f"{site.layout.snapshots}/{identity}"
            if site.transport.run(["sh", "-c", _THERE, "sh", there], check=False).returncode != 0:
                folder = origin.copy_of(identity)
                check(folder, identity)
                with bar("code", None):
                    snapshots.transplant(site, identity, folder)
        same_place = not packed and site.cluster.name == before
        run, parcel, choice = _plan(settings, site, recorded, request, same_place=same_place)
        job_id = hand_over(site, ledger, parcel)
    document = recorded.document
    untold = request.seed is not None and plan.keeps_seed(document["argv"], document.get("template"))
    run = replace(run, job_id=job_id)
    return Rerun(run, job_id, str(document["run_id"]), choice, untold, site.notes)


def _unpacked(path: Path, new_folder: Callable[[], Path]) -> _Origin:
    """An archive, checked: first what describes a run, then what it is made of, as large as described."""
    if not path.is_file():
        raise RunError(f"{path}: no such archive", hint="`clusterkit export RUN` makes one")
    folder = new_folder()
    root = folder / archive.read(path, folder, describes)
    run_dir = root / "run"
    document, request = read_run_dir(run_dir).document, newest_request(run_dir)
    check_document(document, request)
    code, _ = snapshot_ids(document)
    sizes = sizes_of(root, document)
    needed, free = sum(sizes.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"{path}: unpacks to {format_size(needed)}, and {folder} has room for {format_size(free)}",
            hint="make room there: it is removed again afterwards",
        )
    archive.read(path, folder, sizes.get)
    image = next((file for file in root.glob("image/*.sif") if not file.is_symlink()), None)
    return _Origin(
        Recorded(document, request, run_dir, None),
        lambda identity: root / ("code" if identity == code else "trainer"),
        image,
    )


def _known(settings: Settings, ledger: Ledger, name: str, site_of: Callable[[str], Site]) -> _Origin:
    """A run of this project."""
    recorded = read_recorded(
        settings.project.results, ledger, name, lambda cluster: site_of(cluster).transport
    )
    cluster = recorded.run.cluster if recorded.run else str(recorded.document.get("cluster"))

    def copy_of(identity: str) -> Path:
        home = snapshots_home(settings)
        folder = home / identity
        return folder if folder.is_dir() else fetch(site_of(cluster), identity, home)

    return _Origin(recorded, copy_of)


def _bring_image(
    settings: Settings, site: Site, document: Mapping[str, Any], path: Path | None, bar: Bar
) -> None:
    """Make sure that the run's image is there."""
    facts, cluster = document.get("image"), site.cluster
    if (facts is None) != (cluster.container == "none"):
        began = "without a container" if facts is None else "in an image"
        raise ConfigError(
            f'{document["run_id"]} ran {began}, and {cluster.name} has container = "{cluster.container}"',
            hint="choose a cluster that runs programs in the same way with --cluster",
        )
    if facts is None:
        return
    image = Image(str(facts["digest"]), int(facts["bytes"]))
    if images.present(site, image):
        return
    if path is None:
        raise ImageError(
            f"{site.transport.where}: the run's image {image.digest[:12]} is not there",
            hint=f"`clusterkit deploy --cluster {cluster.name} --image FILE.sif` brings the same file",
        )
    chunks = settings.project_dir / ".clusterkit" / "chunks"
    todo = images.plan(site, path, image, cache=chunks, verify=False)
    images.upload(site, path, image, todo, cache=chunks, bar=bar)


def _plan(
    settings: Settings, site: Site, recorded: Recorded, request: RerunRequest, *, same_place: bool
) -> tuple[LedgerRun, Parcel, Choice | None]:
    """The new run: as the old one, but for what is asked to be different."""
    old, before, changes = recorded.document, recorded.request, request.changes
    now = datetime.now(UTC)
    name = request.name or str(old["name"])
    identity = run_id(name, now, secrets.token_hex(2))
    run_dir = site.layout.run(identity)
    profile = changes.profile or recorded_profile(old)
    if changes.time is not None:
        profile = profile.model_copy(update={"time": changes.time})
    argv, env = _program(settings, recorded, request, identity, run_dir)
    check_fit(settings, site.cluster, [(profile, argv)])
    training = plan.trains(argv)
    seed = request.seed if request.seed is not None else old.get("seed")
    steps = plan.option_of(argv, "--total-steps") if training else env.get(plan.TOTAL_STEPS)
    total = int(steps) if steps else old.get("total_steps")
    goes_on = bool(before.get("until_done")) if changes.until_done is None else changes.until_done
    options = options_of(site, changes, profile, before if same_place else {}, goes_on, training=training)
    choice = choose_way(site, options) if goes_on else None
    options = (*options, *(choice.options if choice else ()))
    run = LedgerRun(
        run_id=identity,
        cluster=site.cluster.name,
        name=name,
        profile=profile.name,
        recipe=str((old.get("recipe") or {}).get("name", "")),
        seed=seed or 0,
        job_id="",
        submitted=timestamp(now),
        run_dir=run_dir,
        total_steps=total or 0,
        state=JobState.PENDING,
        until_done=choice.way if choice else "",
    )
    job = job_of(site, run, old, env, profile, options, choice, 0, check=True)
    table = changes.profile.model_dump(mode="json") if changes.profile else dict(old["profile"])
    document = {
        **old,
        "run_id": identity,
        "name": name,
        "created": run.submitted,
        "cluster": run.cluster,
        "profile": table | {"time": profile.time},
        "argv": argv,
        "env": env,
        "workdir": f"{job.workdir}/project",
        "python_path": [bundle_of(site, old)],
        "image": {**old["image"], "path": job.image} if old.get("image") else None,
        "seed": seed,
        "total_steps": total,
        "time_limit_seconds": profile.time,
        "wandb": {**settings.project.wandb.model_dump(mode="json"), "run_id": identity},
        "versions": {"clusterkit": __version__, "python": platform.python_version()},
        "project": settings.project.name,
        "group": None,
        **({"sweep": {**old["sweep"], "seed": str(seed)}} if "seed" in (old.get("sweep") or {}) else {}),
        "rerun_of": old["run_id"],
    }
    folder = f"runs/{identity}"
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    files: dict[str, bytes | str] = {
        f"{folder}/run.json": text.encode("utf-8", "surrogateescape"),
        f"{folder}/launch.py": launcher(),
        f"{folder}/job.sh": render(job).encode(),
        f"{folder}/attempts/": "",
        f"{folder}/submissions/0/request.json": request_json(
            0, "first", run.submitted, options, until_done=choice.way if choice else None
        ),
    }
    return run, Parcel((run,), folder, files, options), choice


def _program(
    settings: Settings, recorded: Recorded, request: RerunRequest, identity: str, run_dir: str
) -> tuple[list[str], dict[str, str]]:
    """Argv and environment: those that made the results, at home in another run directory."""
    old, wandb = recorded.document, settings.project.wandb
    argv = list(recorded.request.get("argv") or old["argv"])
    env = dict(recorded.request.get("env") or old["env"])
    if request.changes.profile:
        argv, env = plan.with_hardware(argv, env, request.changes.profile)
    template = old.get("template")
    if request.seed is not None and plan.trains(argv):
        argv = plan.with_option(argv, "--seed", str(request.seed))
    elif request.seed is not None:
        env[plan.SEED] = str(request.seed)
    if request.changes.total_steps is not None:
        argv, env = plan.with_steps(argv, env, template, request.changes.total_steps)
    if template:
        argv = list(plan.filled(template, env, identity, run_dir))
    there = env.get("WANDB_DIR", "")  # which is the run directory, whatever cluster the run was moved to
    env = {name: moved(value, there, run_dir) for name, value in env.items()} if there else env
    env |= {
        "WANDB_RUN_ID": identity,
        "WANDB_DIR": run_dir,
        "WANDB_MODE": wandb.mode,
        "WANDB_PROJECT": wandb.project,
    }
    env.pop("WANDB_ENTITY", None)
    if request.seed is not None and _SWEPT_SEED in env:
        env[_SWEPT_SEED] = str(request.seed)
    return argv, env | ({"WANDB_ENTITY": wandb.entity} if wandb.entity else {})
