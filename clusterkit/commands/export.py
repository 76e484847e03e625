"""export: write everything needed to understand and repeat a run to one archive."""

from __future__ import annotations

import posixpath
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import ImageError, RunError
from clusterkit.folders import make_ignored, work_folder
from clusterkit.images.image import Image, sha256_of
from clusterkit.images.image import present as image_present
from clusterkit.results.checkpoints import models_here, telling_rows
from clusterkit.results.places import place
from clusterkit.results.pull import RUN_ID, pull_runs
from clusterkit.results.pulled import folder_of, pulled_run, runs_meant
from clusterkit.results.selection import Checkpoints
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.runs.run_dir import read_run_dir
from clusterkit.runs.spec import RunSpec
from clusterkit.sharing import archive
from clusterkit.sharing.contents import Code, contents
from clusterkit.site import Site, open_site
from clusterkit.snapshots.copy import check, fetch
from clusterkit.submit.materials import hash_image, snapshots_home
from clusterkit.transport.base import Bar, SyncOptions
from clusterkit.untrusted import read_object

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings

SUFFIXES = (".tar.zst", ".tar.gz")


@dataclass(frozen=True)
class Exported:
    """A written and verified archive."""

    path: Path
    bytes: int
    files: int
    ended: bool
    """Whether the run had ended."""
    model: Path | None
    """The exported model."""
    image: str | None
    """Digest of the run's image, if any."""
    with_image: bool
    packages: int


def export(
    settings: Settings, ledger: Ledger, name: str, out: Path | None, *, with_image: bool, bar: Bar
) -> Iterator[Exported]:
    """Writes the archive of a run, or one archive for each run of a group.

    Missing parts are pulled from the cluster over one login: the run unless its local copy is final, its code
    unless an earlier export pulled it, and the image.

    Args:
        settings: of the project.
        ledger: of the project.
        name: a run, a group, or the path of a run directory.
        out: the archive, or a folder for it, which a group needs; None for `exports/` in the results. In a
            folder the archive is named `RUN.tar.zst`, or `RUN.tar.gz` without zstd.
        with_image: include the image.
        bar: opens progress bars.

    Raises:
        RunError: the run or its code is gone, or a file is damaged.
        ImageError: the image is gone.
        TransportError: the cluster cannot be reached.
    """
    if out is not None:
        _check_out(out)
    results = settings.results_to_write()
    meant = [name] if folder_of(name) else [run.run_id for run in runs_meant(results, name, ledger)]
    if len(meant) > 1 and out is not None and not out.is_dir():
        raise RunError(f"{out} is one archive, and {name!r} means {len(meant)} runs", hint="name a folder")
    with ExitStack() as stack:
        site_of = cache(
            lambda cluster: stack.enter_context(open_site(settings.cluster(cluster), create=False))
        )
        fresh = _pull(settings, ledger, meant, site_of, bar) if len(meant) > 1 else frozenset()
        for each in meant:
            yield _export(settings, ledger, each, out, site_of, fresh, with_image=with_image, bar=bar)


def _pull(
    settings: Settings, ledger: Ledger, run_ids: Sequence[str], site_of: Callable[[str], Site], bar: Bar
) -> frozenset[str]:
    """Pulls at once those of some runs whose local copy is not final; returns their ids."""
    results, wanted = settings.project.results, set(run_ids)
    runs = [run for run in ledger.runs() if run.run_id in wanted and not _final(results / run.run_id)]
    for (cluster, root), group in groupby(sorted(runs, key=place), key=place):
        with bar(f"runs from {cluster}", None) as progress:
            pull_runs(
                site_of(cluster).transport,
                runs_root=root,
                run_ids=[run.run_id for run in group],
                results=results,
                checkpoints=Checkpoints.LAST,
                progress=progress,
            )
    return frozenset(run.run_id for run in runs)


def _final(folder: Path) -> bool:
    """Returns whether a folder is the copy of a run that had ended."""
    return (folder / "run.json").is_file() and read_run_dir(folder).ended


def _check_out(out: Path) -> None:
    """Check, before anything is pulled from the cluster, that the archive can be written.

    Raises:
        RunError: it is not an archive's name, or its folder does not exist.
    """
    if out.is_dir():
        return
    if not out.name.endswith(SUFFIXES):
        raise RunError(
            f"{out}: an export is a {' or a '.join(SUFFIXES)} file",
            hint="name such a file, or a folder that exists",
        )
    if not out.parent.is_dir():
        hint = f"make it first: mkdir -p {shlex.quote(str(out.parent))}"
        raise RunError(f"{out}: there is no folder {out.parent}", hint=hint)


def _export(
    settings: Settings,
    ledger: Ledger,
    name: str,
    out: Path | None,
    site_of: Callable[[str], Site],
    fresh: Set[str],
    *,
    with_image: bool,
    bar: Bar,
) -> Exported:
    with ExitStack() as stack:
        source = _ExportSource(settings, ledger, name, site_of, fresh, stack, bar)
        directory = read_run_dir(source.run_dir)
        document = directory.document
        spec = RunSpec.recorded(document, str(source.run_dir / "run.json"))
        trees = [source.code(identity) for identity in spec.trees]
        wanted = spec.stored_image
        image = source.image(wanted) if wanted and with_image else None
        models = models_here(source.run_dir, telling_rows(source.run_dir))
        model = models[-1].path if models else None
        packages = _packages(settings, wanted.digest) if wanted else {}
        members = contents(
            source.run_dir,
            document,
            trees=trees,
            packages=packages,
            image=image,
            model=model,
        )
        run_id = directory.run_id
        if not RUN_ID.fullmatch(run_id):  # it becomes part of local file names
            raise RunError(f"{source.run_dir / 'run.json'}: {run_id!r} is not a run id")
        suffix = SUFFIXES[0] if shutil.which("zstd") else SUFFIXES[1]
        folder = out or settings.project.results / "exports"
        if out is None:
            make_ignored(settings.project.results)
            folder.mkdir(mode=0o700, exist_ok=True)
        path = folder / f"{run_id}{suffix}" if folder.is_dir() else folder
        with bar("archive", None):
            archive.write(path, run_id, members)
    return Exported(
        path,
        path.stat().st_size,
        len(members) + 1,
        directory.ended,
        model,
        wanted.digest if wanted else None,
        image is not None,
        len(packages),
    )


class _ExportSource:
    """Provides the parts of an export, pulling from the cluster only those without a local copy."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        name: str,
        site_of: Callable[[str], Site],
        fresh: Set[str],
        stack: ExitStack,
        bar: Bar,
    ) -> None:
        self._settings, self._ledger, self._stack, self._bar = settings, ledger, stack, bar
        self._site_of = site_of
        results = settings.project.results
        folder = pulled_run(results, name, ledger)
        if folder is None:
            run = ledger.find_one(name)
            self._cluster = settings.cluster(run.cluster)
            self.run_dir = self._pull(run)
            return
        directory = read_run_dir(folder)
        known = ledger.get(directory.run_id)
        self._cluster = settings.cluster(known.cluster if known else str(directory.document["cluster"]))
        ours = known is not None and folder.resolve() == (results / known.run_id).resolve()
        over = directory.ended or directory.run_id in fresh
        self.run_dir = self._pull(known) if known and ours and not over else folder

    @cached_property
    def _site(self) -> Site:
        return self._site_of(self._cluster.name)

    def code(self, identity: str) -> Code:
        """Returns a verified local copy of a snapshot."""
        home = snapshots_home(self._settings)
        folder = home / identity
        if not folder.is_dir():
            with self._bar("code", None) as progress:
                folder = fetch(self._site, identity, home, progress=progress)
        return Code(identity, folder, check(folder, identity))

    def image(self, wanted: Image) -> Path:
        """Returns the image's file: this machine's if it has it, else pulled."""
        cluster = self._cluster
        for local in cluster.image_files:
            if hash_image(local, self._ledger, self._bar, runtime=cluster.container) == wanted:
                return local
        if not image_present(self._site, wanted):
            raise ImageError(
                f"{self._site.transport.where}: image {wanted.digest[:12]} is no longer there",
                hint="without --with-image, the archive contains only its digest",
            )
        own = self._settings.project_dir / ".clusterkit"
        folder = self._stack.enter_context(work_folder(own))
        with self._bar("image", wanted.bytes) as progress:
            options = SyncOptions(files_from=(wanted.name,), mode="u+w")
            self._site.transport.pull(self._site.layout.images, folder, options=options, progress=progress)
        if sha256_of(folder / wanted.name) != wanted.digest:
            raise ImageError(f"{self._site.transport.where}: image {wanted.digest[:12]} is damaged")
        return folder / wanted.name

    def _pull(self, run: LedgerRun) -> Path:
        results = self._settings.project.results
        with self._bar(f"{run.run_id} from {run.cluster}", None) as progress:
            (pulled,) = pull_runs(
                self._site.transport,
                runs_root=posixpath.dirname(run.run_dir),
                run_ids=[run.run_id],
                results=results,
                checkpoints=Checkpoints.LAST,
                progress=progress,
            )
        if not pulled.found:
            raise RunError(f"{run.run_id}: there is no run directory {run.run_dir} on {run.cluster}")
        return results / run.run_id


def _packages(settings: Settings, digest: str) -> dict[str, str]:
    """Returns the packages of the image that this project built last; empty for any other image."""
    record = read_object(settings.project_dir / ".clusterkit" / "build.json") or {}
    return dict(record.get("packages") or {}) if record.get("digest") == digest else {}
