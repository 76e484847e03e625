"""A run's image and the snapshot of the working tree: which they are, and what of them is to be sent."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterkit import snapshots
from clusterkit.errors import ConfigError, ImageError
from clusterkit.images.architecture import fitting
from clusterkit.images.image import Image, local_image
from clusterkit.images.image import present as image_present
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.secret_values import SecretValues
from clusterkit.runtimes import DEFAULT as DEFAULT_RUNTIME
from clusterkit.site import Layout, Site, open_site
from clusterkit.snapshots import Allow, Snapshot, Standing
from clusterkit.transport.base import Bar, ProgressCallback, TransferProgress

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.environments.environment import Environment
    from clusterkit.images.planning import UploadPlan
    from clusterkit.images.upload import Sent
    from clusterkit.probes.space import Space
    from clusterkit.runs.spec import RunSpec

RATE_FROM = 4 << 20
"""Bytes; smaller transfers measure round trips rather than bandwidth."""


@dataclass(frozen=True)
class Materials:
    """A run's code, trainer, image and environment, identified by content."""

    code: str
    """Id of the project's snapshot."""
    trainer: str | None
    """The trainer package's folder, relative to the snapshots; None without it."""
    facts: Mapping[str, Any]
    """The snapshot's description in run.json."""
    image: Image | None
    environment: Environment | None = None

    @classmethod
    def taken(cls, snapshot: Snapshot, image: Image | None, environment: Environment | None) -> Materials:
        """Returns the materials for runs of the working tree."""
        bundle = f"{snapshot.bundle.id}/bundle" if snapshot.bundle else None
        return cls(snapshot.id, bundle, snapshot.facts, image, environment)

    @classmethod
    def recorded(cls, spec: RunSpec) -> Materials:
        """Returns the materials of an earlier run."""
        bundle = next((f"{identity}/bundle" for identity in spec.trees[1:]), None)
        environment = None
        if spec.environment:
            from clusterkit.environments.environment import Environment

            environment = Environment.recorded(spec.environment)
        return cls(spec.code, bundle, spec.snapshot, spec.stored_image, environment)


def without_values(secrets: SecretValues, materials: Materials) -> Materials:
    """Returns a run's materials with the values masked in the recorded git diff.

    The files that are sent contain none, but the diff has the lines that were removed, too.
    """
    diff = materials.facts.get("diff")
    if not diff:
        return materials
    return replace(materials, facts={**materials.facts, "diff": secrets.masked(diff)})


def image_of(
    cluster: Cluster, ledger: Ledger, bar: Bar, requests: Sequence[Sequence[str]] | None = None
) -> Image | None:
    """Returns the image of new runs on a cluster; None if the cluster uses none of its store.

    Args:
        cluster: the cluster.
        ledger: stores digests and what was deployed.
        bar: opens progress bars.
        requests: the options of the runs' jobs, for whose nodes the image is; None for any.

    Raises:
        ImageError: no image is configured and none was deployed, or nodes cannot start it.
    """
    if not cluster.stores_image:
        return None
    if found := images_of(cluster, ledger, bar):
        image = Image.of(*found)
        return image if requests is None else fitting(image, cluster, requests)
    raise ImageError(
        f"no image was deployed to {cluster.name}, and "
        + (f"{cluster.image} is not there" if cluster.image else "none is configured"),
        hint=cluster.runtime.make_image
        or f"`clusterkit build` makes one and `clusterkit deploy --cluster {cluster.name}` sends it; "
        f"or `clusterkit build --cluster {cluster.name}`",
    )


def images_of(cluster: Cluster, ledger: Ledger, bar: Bar) -> dict[Image, Path | None]:
    """Returns the cluster's image for each architecture, with its file; None for one that is only there.

    Raises:
        ImageError: a file is no image, or for another architecture than its name says.
    """
    found: dict[Image, Path | None] = {}
    for path in cluster.image_files:
        image = hash_image(path, ledger, bar, runtime=cluster.container)
        if image.arch and path != cluster.image_file(image.arch):
            raise ImageError(f"{path} is for {image.arch}", hint="give it the name of its architecture")
        found[image] = path
    if not found or cluster.image_by_architecture:
        known = {image.arch for image in found}
        deployed = (image for image in ledger.deployed(cluster.name) if image.arch not in known)
        found |= {image: None for image in deployed if image not in found}  # it may not have told its own
    return found


def environment_of(settings: Settings, cluster: Cluster, image: Image | None) -> Environment | None:
    """Returns the Python environment of new runs on a cluster; None if the project names none.

    Raises:
        ConfigError: its file is missing, or asks for what cannot travel.
    """
    file = settings.project.environment
    if file is None:
        return None
    from clusterkit.environments.environment import read_environment

    base = image.digest if image else cluster.registry_image or ""
    return read_environment(settings.project_dir, file, base)


def send_environment(
    site: Site,
    environment: Environment | None,
    image: Image | None,
    bar: Bar,
    code: Callable[[], Path] | None = None,
) -> bool:
    """Puts what an environment is built from on a cluster, and its packages where nodes cannot fetch them.

    Args:
        site: the cluster.
        environment: of the runs, if they have one.
        image: of the runs, if they have one.
        bar: opens progress bars.
        code: returns the folder of a recorded run's code here, from which a lost environment is read again.

    Returns:
        Whether a job has to build it.

    Raises:
        ConfigError: the cluster lacks it, and the code does not say any more what it was.
        TransportError: the cluster cannot be reached or written to.
    """
    if environment is None:
        return False
    from clusterkit.environments.store import look, publish

    cluster = site.cluster
    on_node = cluster.packages == "node"
    if code and not environment.inputs:
        recorded = look(site, environment)
        if not (recorded.there and (on_node or recorded.wheels)):
            environment = _read_again(site, environment, image, code())
    stored = publish(site, environment)
    if not (on_node or stored.wheels):
        from clusterkit.environments.job import build_script
        from clusterkit.environments.wheels import fetch

        path = image.path(site.layout.images) if image else cluster.registry_image
        fetch(site, environment, build_script(cluster, site.layout, environment, path), bar=bar)
    return not stored.built


def _read_again(site: Site, recorded: Environment, image: Image | None, code: Path) -> Environment:
    """Reads the environment of a recorded run from the run's code."""
    from clusterkit.environments.environment import read_environment

    base = image.digest if image else site.cluster.registry_image or ""
    environment = read_environment(code, code / recorded.file, base)
    if environment.digest != recorded.digest:
        raise ConfigError(
            f"{site.transport.where}: the environment of {recorded.file} is missing, and the code of "
            "the run does not tell what it was",
            hint="`clusterkit submit` starts a new run with a new environment",
        )
    return environment


def layout_of(cluster: Cluster) -> Layout:
    """Returns the paths of a cluster's work root; logs in only if they depend on the account.

    Raises:
        TransportError: the cluster cannot be reached.
    """
    roots = [path.rstrip("/") for path in (cluster.root, cluster.scratch_root, cluster.image_root)]
    if not any(mark in path for path in roots for mark in "$~"):
        return Layout(*roots)
    with open_site(cluster, create=False) as site:
        return site.layout


def must_have_image(site: Site, image: Image | None, *, hint: str) -> None:
    """Raises ImageError, with the hint, if the cluster does not have the image."""
    if image and not image_present(site, image):
        raise ImageError(f"{site.transport.where}: image {image.digest[:12]} is not there", hint=hint)


def send_snapshot(site: Site, snapshot: Snapshot, ledger: Ledger, bar: Bar) -> bool:
    """Sends a snapshot to a cluster; returns False if the cluster already had it."""
    standing = snapshots.look(site, snapshot, basis=ledger.snapshot(site.cluster.name), use=True)
    publish_snapshot(site, standing, ledger, bar)
    return not standing.present


def hash_image(path: Path, ledger: Ledger, bar: Bar, *, runtime: str = DEFAULT_RUNTIME) -> Image:
    """Returns the image with its digest; shows a bar while hashing it for the first time."""
    size = path.stat().st_size if path.is_file() else None
    with ExitStack() as stack:
        show: ProgressCallback | None = None

        def hashed(done: int) -> None:
            nonlocal show
            show = show or stack.enter_context(bar("hashing the image", size))
            show(TransferProgress(done, size, 0.0))

        return local_image(path, ledger, runtime=runtime, hashed=hashed)


def excluded(settings: Settings) -> list[str]:
    """Returns patterns of the files that the settings exclude from snapshots, including the results."""
    project, folder = settings.project, settings.project_dir
    results = project.results
    own = [f"/{results.relative_to(folder).as_posix()}"] if results.is_relative_to(folder) else []
    return [*project.exclude, *own]


def take_snapshot(
    settings: Settings,
    secrets: SecretValues,
    allow: Allow | None = None,
    ledger: Ledger | None = None,
    *,
    trainer: bool,
) -> Snapshot:
    """Takes a snapshot of the project's working tree.

    Args:
        settings: the project's settings.
        secrets: those whose values are known; they may not be in what is sent.
        allow: called about files over the size limit; None refuses them.
        ledger: caches the digests of unchanged files.
        trainer: whether a program uses the bundled trainer.

    Raises:
        ConfigError: a file or the git branch's name contains a secret's value.
        ClusterkitError: as `snapshots.take`.
    """
    project = settings.project
    snapshot = snapshots.take(
        settings.project_dir,
        exclude=excluded(settings),
        include=project.include,
        max_file_size=project.max_file_size,
        trainer=trainer,
        allow=allow,
        look=secrets.refuse_in_files,
        memory=ledger.connection if ledger else None,
    )
    secrets.refuse_shown(git={"branch": snapshot.git.branch})
    return snapshot


def chunk_cache(settings: Settings) -> Path:
    """Returns the folder of this project's chunk lists of images."""
    return settings.project_dir / ".clusterkit" / "chunks"


def publish_snapshot(site: Site, standing: Standing, ledger: Ledger, bar: Bar) -> None:
    """Sends the missing parts of a snapshot and records it as the last one sent."""
    start = time.monotonic()
    if not standing.present:
        with bar("code", standing.snapshot.bytes) as progress:
            sent = snapshots.publish(site, standing, progress=progress)
        if sent.bytes >= RATE_FROM:
            rate = sent.bytes / (time.monotonic() - start)
            ledger.set_rate(site.cluster.name, rate, datetime.now(UTC).date().isoformat())
    if ledger.snapshot(site.cluster.name) != standing.snapshot.id:
        ledger.set_snapshot(site.cluster.name, standing.snapshot.id)


def snapshots_home(settings: Settings) -> Path:
    """Returns the folder of snapshots on this machine."""
    return settings.project_dir / ".clusterkit" / "snapshots"


@dataclass(frozen=True)
class Copies:
    """Copies of the state in the project's `.clusterkit` folder."""

    ledger: Ledger
    chunks: Path
    """Folder of the images' chunk lists."""


@contextmanager
def copies(settings: Settings) -> Iterator[Copies]:
    """Copies the ledger and the chunk lists; the copies are empty if there are none."""
    remembered = settings.project_dir / ".clusterkit"
    with tempfile.TemporaryDirectory(prefix="clusterkit-plan-") as folder:
        chunks = Path(folder) / "chunks"
        if chunk_cache(settings).is_dir():
            shutil.copytree(chunk_cache(settings), chunks)
        with Ledger(remembered / "ledger.sqlite3", copy=True) as copy:
            yield Copies(copy, chunks)


@dataclass(frozen=True)
class TransferRate:
    """The speed of uploads to a cluster."""

    bytes_per_second: float
    measured: str | None
    """Day of the upload that it was measured on; None if measured just now."""


@dataclass(frozen=True)
class DeploymentPlan:
    """The files already on a cluster and those that a deployment will send."""

    cluster: str
    root: str
    image: Image | None
    image_path: Path | None
    image_plan: UploadPlan
    standing: Standing
    image_sent: Sent | None = None
    """The finished image upload; None before it or without one."""
    spaces: tuple[Space, ...] = ()
    rate: TransferRate | None = None
    trusted: tuple[str, ...] = ()
    """A line for each folder on the cluster that a trusted other user could change."""
    environment: Environment | None = None
    built: tuple[int, ...] = ()
    """The environment's bytes for each Python that it is built for there."""
    build_job: str = ""
    """The job that builds it, if there is one."""
    others: tuple[DeploymentPlan, ...] = ()
    """The deployments of the same image for other architectures."""

    @property
    def snapshot(self) -> Snapshot:
        """The working tree."""
        return self.standing.snapshot

    @property
    def bytes_to_send(self) -> int:
        """Bytes of the image and the code."""
        return self.image_plan.bytes_to_send + self.standing.bytes_to_send

    @property
    def seconds(self) -> float | None:
        """Estimated transfer time in seconds; None without a rate."""
        return self.bytes_to_send / self.rate.bytes_per_second if self.rate else None

    @property
    def shortage(self) -> str | None:
        """Why the files do not fit, or None; roots on one file system share its free space."""
        needs = {"images": self.image_plan.disk_bytes, "work root": self.standing.bytes_to_send}
        for space in self.spaces:
            needed = sum(
                needs.get(other.role, 0)
                for other in self.spaces
                if other.role == space.role or (space.file_system and other.file_system == space.file_system)
            )
            if needs.get(space.role) and space.left is not None and space.left < needed:
                limit = "allowed by the quota" if space.left == space.quota_left else "free"
                left, need = space.left / 2**20, needed / 2**20
                return f"{space.path} has {left:,.0f} MiB {limit}, and {need:,.0f} MiB are needed"
        return None
