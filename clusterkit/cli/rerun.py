"""`clusterkit rerun`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.resume import changes
from clusterkit.cli.ui.console import note, transfer_bar, warn_of_trusted
from clusterkit.cli.ui.submit import (
    note_continuation,
    note_name,
    print_submitted,
    show_job,
    warn_lacking,
)
from clusterkit.errors import ConfigError, RunError
from clusterkit.folders import work_folder
from clusterkit.project import load, open_ledger
from clusterkit.sharing import archive
from clusterkit.site import open_site
from clusterkit.units import format_size

if TYPE_CHECKING:
    from clusterkit.backends.submission import Submission
    from clusterkit.config.settings import Settings
    from clusterkit.runs.ledger import Ledger
    from clusterkit.runs.secret_values import SecretValues
    from clusterkit.runs.spec import RunSpec
    from clusterkit.site import Site
    from clusterkit.submit.pipeline import Submitted
    from clusterkit.submit.plan import Plan
    from clusterkit.submit.request import Changes


def rerun(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN|ARCHIVE", help="A run, a group, a folder with a run, or an export."),
    ] = "last",
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="NAME",
            help="Cluster to use; if left out, the run's own, or for an archive the default one.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="New seed.")] = None,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="New name.")] = None,
    profile: options.OtherProfile = None,
    time: options.OtherTime = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="New total number of environment steps.")
    ] = None,
    until_done: options.UntilDoneAsBefore = None,
    native: options.Native = None,
    dry_run: options.DryRun = False,
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Submit an earlier run again as a new run, and print its id.

    Uses the code, image and arguments of that run, regardless of the current working tree.

    Examples:
      # the same code and image, another seed
      clusterkit rerun last --seed 7
      # what would run, without submitting it
      clusterkit rerun last --time 8h --dry-run
      # from an export
      clusterkit rerun paper.tar.zst --cluster uni

    See also: clusterkit export, clusterkit resume, sharing.md
    """
    settings = load(config)
    again = changes(
        settings,
        profile=profile,
        cluster=cluster,
        time=time,
        total_steps=total_steps,
        until_done=until_done,
        native=native,
    )
    from clusterkit.cli.ui.dry_run import print_dry_run, show_dry_run
    from clusterkit.runs.secret_values import find_secrets
    from clusterkit.runs.spec import must_start_alike
    from clusterkit.submit.materials import Materials
    from clusterkit.submit.pipeline import foresee, hand_over, prepare

    foreseen, done = [], []
    with open_ledger(settings, of=[name], only_reads=dry_run) as ledger, ExitStack() as stack:
        site_of = cache(
            lambda cluster: stack.enter_context(open_site(settings.cluster(cluster), create=not dry_run))
        )
        secrets = cache(lambda: find_secrets(settings))  # asks a password manager once, for all runs
        for origin in _origins(settings, ledger, name, site_of, stack, one_seed=seed is not None):
            plan, lacking = _plan(settings, ledger, again, origin, name=new_name, seed=seed, allow_unread=yes)
            values, materials = secrets(), Materials.recorded(origin.spec)
            must_start_alike(origin.spec, plan.cluster)
            if dry_run:
                foreseen.append(replace(foresee(settings, plan, materials, values), lacking=lacking))
                if not as_json:
                    show_dry_run(foreseen[-1])
                continue
            site = site_of(plan.cluster.name)
            ready = prepare(site, ledger, plan, materials, values)
            _publish(settings, site, origin, ready.placed[0].spec.trees, values)
            done.append(replace(hand_over(site, ledger, ready), lacking=lacking))
            show_rerun(done[-1], as_json=as_json)
    if as_json and dry_run:
        print_dry_run(*foreseen, more=[{"rerun_of": one.first.spec.rerun_of} for one in foreseen])
    elif as_json:
        print_submitted(done, [{"rerun_of": one.placed[0].spec.rerun_of} for one in done])


_THERE = 'test -d "$1" && touch -c "$1" 2>/dev/null; test -d "$1"'
"""Whether a snapshot exists; also refreshes its mtime, so that `storage prune` keeps it."""


@dataclass(frozen=True)
class _RerunOrigin:
    """The run to repeat."""

    spec: RunSpec
    newest: Submission
    """Its newest submission."""
    cluster: str | None
    """The cluster it ran on; None for an archive, whose names are those of whoever exported it."""
    copy_of: Callable[[str], Path]
    """Returns a snapshot's local folder, given its id."""
    image: Path | None = None
    """The image file, if the archive has it."""


def _origins(
    settings: Settings,
    ledger: Ledger,
    of: str,
    site_of: Callable[[str], Site],
    stack: ExitStack,
    *,
    one_seed: bool,
) -> Iterator[_RerunOrigin]:
    """Yields a run, those of a group, or that of an archive.

    Raises:
        RunError: the run is unknown, its code is gone, or the archive is damaged.
        ConfigError: one seed was given for all runs of a group.
    """
    from clusterkit.commands.export import SUFFIXES

    if of.endswith(SUFFIXES) or Path(of).is_file():
        home = settings.project_dir / ".clusterkit"
        yield _unpacked(Path(of), lambda: stack.enter_context(work_folder(home)))
        return
    names = _members(settings, ledger, of)
    if one_seed and len(names) > 1:
        raise ConfigError(
            f"--seed gives one seed, and {of!r} means {len(names)} runs",
            hint=f"name one of them, e.g. {names[0]}; or `clusterkit submit --seeds`",
        )
    yield from (_known(settings, ledger, name, site_of) for name in names)


def _plan(
    settings: Settings,
    ledger: Ledger,
    changes: Changes,
    origin: _RerunOrigin,
    *,
    name: str | None,
    seed: int | None,
    allow_unread: bool,
) -> tuple[Plan, tuple[str, ...]]:
    """Plans and checks a copy of a run; returns also what it asks of the machine and that lacks.

    Raises:
        ConfigError: the request is invalid, or the seed does not reach the program.
    """
    from clusterkit.submit.check import check
    from clusterkit.submit.own_program import check_reach
    from clusterkit.submit.resubmit import rerun_plan

    cluster = settings.cluster(changes.cluster or origin.cluster)
    plan = rerun_plan(
        settings,
        cluster,
        origin.spec,
        origin.newest,
        changes,
        name=name,
        seed=seed,
        same_place=cluster.name == origin.cluster,
    )
    lacking = check(settings, plan, ledger)
    if plan.runs[0].unplaced and not allow_unread:
        code = origin.copy_of(origin.spec.code) / "project"
        check_reach(plan, code, (path.relative_to(code).as_posix() for path in code.rglob("*")))
    return plan, lacking


def _members(settings: Settings, ledger: Ledger, of: str) -> list[str]:
    """Returns the path of a run directory as it is, or the ids of the runs that a name means."""
    from clusterkit.results.pulled import folder_of, runs_meant

    if folder_of(of) is not None:
        return [of]
    return [run.run_id for run in runs_meant(settings.project.results, of, ledger)]


def _unpacked(path: Path, new_folder: Callable[[], Path]) -> _RerunOrigin:
    """Unpacks and checks an archive: first the run's description, then its parts, limited to their sizes."""
    from clusterkit.runs.run_dir import newest_request, read_run_dir
    from clusterkit.runs.spec import RunSpec
    from clusterkit.sharing.received import check_received, describes, sizes_of

    if not path.is_file():
        raise RunError(f"{path}: no such archive", hint="`clusterkit export RUN` makes one")
    folder = new_folder()
    root = folder / archive.read(path, folder, describes)
    run_dir = root / "run"
    spec = RunSpec.recorded(read_run_dir(run_dir).document, f"run.json in {path}")
    newest = newest_request(run_dir)
    check_received(spec, newest)
    sizes = sizes_of(root, spec)
    needed, free = sum(sizes.values()), shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"{path}: unpacks to {format_size(needed)}, but {folder} has only {format_size(free)} free",
            hint="free space there; the files are removed afterwards",
        )
    archive.read(path, folder, sizes.get)
    image = next((file for file in root.glob("image/*.sif") if not file.is_symlink()), None)
    folders = {identity: root / name for identity, name in zip(spec.trees, archive.TREES, strict=False)}
    return _RerunOrigin(spec, newest, None, folders.__getitem__, image)


def _known(settings: Settings, ledger: Ledger, name: str, site_of: Callable[[str], Site]) -> _RerunOrigin:
    """Returns the origin for a run of this project."""
    from clusterkit.results.pulled import read_recorded
    from clusterkit.runs.spec import RunSpec
    from clusterkit.snapshots.copy import fetch
    from clusterkit.submit.materials import snapshots_home

    recorded = read_recorded(
        settings.project.results, ledger, name, lambda cluster: site_of(cluster).transport
    )
    run = recorded.run
    where = f"{run.run_dir} on {run.cluster}" if run and not recorded.folder else str(recorded.folder)
    spec = RunSpec.recorded(recorded.document, f"{where}: run.json")
    cluster = run.cluster if run else spec.cluster

    def copy_of(identity: str) -> Path:
        home = snapshots_home(settings)
        folder = home / identity
        return folder if folder.is_dir() else fetch(site_of(cluster), identity, home)

    return _RerunOrigin(spec, recorded.request.whole(where), cluster, copy_of)


def _publish(
    settings: Settings, site: Site, origin: _RerunOrigin, trees: Sequence[str], secrets: SecretValues
) -> None:
    """Makes sure that the cluster has the run's image, trees and environment, uploading them if possible."""
    from clusterkit import snapshots
    from clusterkit.images.image import present as image_present
    from clusterkit.images.planning import plan as plan_image
    from clusterkit.images.upload import upload as upload_image
    from clusterkit.snapshots.copy import check as check_copy
    from clusterkit.submit.materials import Materials, chunk_cache, must_have_image, send_environment

    image, path = origin.spec.stored_image, origin.image
    if path is None or image is None or image_present(site, image):
        hint = f"`clusterkit deploy --cluster {site.cluster.name} --image FILE.sif` uploads the same file"
        must_have_image(site, image, hint=hint)
    else:
        cache_folder = chunk_cache(settings)
        todo = plan_image(site, path, image, cache=cache_folder, verify=False)
        upload_image(site, path, image, todo, cache=cache_folder, bar=transfer_bar)
    for identity in trees:
        there = f"{site.layout.snapshots}/{identity}"
        if site.transport.run(["sh", "-c", _THERE, "sh", there], check=False).returncode != 0:
            folder = origin.copy_of(identity)
            check_copy(folder, identity)
            files = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
            secrets.refuse_in_files(folder, (path.relative_to(folder).as_posix() for path in files))
            with transfer_bar("code", None):
                snapshots.transplant(site, identity, folder)
    environment = Materials.recorded(origin.spec).environment
    send_environment(
        site, environment, image, transfer_bar, lambda: origin.copy_of(origin.spec.code) / "project"
    )


def show_rerun(done: Submitted, *, as_json: bool) -> None:
    """Prints only the run id on standard output, unless JSON follows; the rest goes to standard error."""
    (run,), (placed,) = done.runs, done.placed
    seed = f", seed {run.seed}" if run.recipe or run.seed else ""
    note(f"as {placed.spec.rerun_of}: its code, image and arguments{seed}")
    note_name(placed.spec.name, run.run_id)
    warn_lacking(done.lacking)
    warn_of_trusted(done.trusted)
    note_continuation(done.continuation)
    show_job(done, as_json=as_json)
