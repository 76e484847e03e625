"""Builds an image in a job on a cluster and puts it into the cluster's image store."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from clusterkit.backends import backend_of
from clusterkit.errors import ConfigError
from clusterkit.images import chunks
from clusterkit.images.building.apptainer import save, workshop
from clusterkit.images.building.work import Request, Work, daemon_image, prepare
from clusterkit.images.image import Image
from clusterkit.images.image import present as image_present
from clusterkit.runs.image_build import RemoteBuild
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.materials import hash_image
from clusterkit.site import Site, open_site
from clusterkit.transport.base import Bar
from clusterkit.units import format_duration

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_SECONDS, _CPUS, _MEMORY = 2 * 3600, 4, "16G"
"""The job's request; mksquashfs takes a quarter of the memory it sees."""


@dataclass(frozen=True)
class BuiltThere:
    """An image in a cluster's store."""

    image: Image
    path: str
    packages: dict[str, str]


def build_on(
    cluster: Cluster,
    request: Request,
    ledger: Ledger,
    *,
    native: tuple[str, ...],
    say: Callable[[str], None],
    bar: Bar,
) -> BuiltThere:
    """Builds an image on a cluster and makes it this project's image on that cluster.

    If the same build is already running, it is watched instead of started again. Ctrl-C cancels the job; a
    lost connection does not.

    Args:
        cluster: the target.
        request: the image.
        ledger: caches digests and records the deployed image.
        native: additional scheduler options for the job, e.g. `--partition=cpu`.
        say: called with each line of the job's log.
        bar: opens progress bars.

    Raises:
        ConfigError: the request, or an sbatch option, is wrong.
        ImageError: a file is missing, or the build failed; the message gives the reason.
        SchedulerError: the scheduler refused the job.
        TransportError: the cluster cannot be reached.
    """
    if cluster.container == "none":
        raise ConfigError(
            f"cluster {cluster.name} runs no containers",
            hint='set container = "apptainer" of the cluster, if it has Apptainer',
        )
    options = _job_options(cluster, native)
    with _portable(request) as work, open_site(cluster) as site:
        work = _base_from_store(site, work, ledger, bar)
        one = RemoteBuild(site, work, options, say, chunker=chunks.program())
        if not one.find():
            one.send(bar)
            one.submit()
        result = one.watch()
        built = BuiltThere(
            Image(result.digest, result.bytes),
            f"{site.layout.images}/sha256-{result.digest}.sif",
            one.packages(),
        )
        one.remove()
    ledger.set_deployment(cluster.name, built.image.digest, built.image.bytes)
    return built


def _job_options(cluster: Cluster, native: tuple[str, ...]) -> tuple[str, ...]:
    from clusterkit.config.models import Profile

    seconds = min(_SECONDS, cluster.max_time or _SECONDS)
    asked = {"name": "build", "time": format_duration(seconds), "cpus": _CPUS, "memory": _MEMORY}
    profile = Profile.model_validate(asked)
    return backend_of(cluster).options(cluster, profile, signal=None, extra=native)


@contextlib.contextmanager
def _portable(request: Request) -> Iterator[Work]:
    """Prepares the build for another machine; a local Docker image is exported first."""
    name = daemon_image(request)
    if name is None:
        yield prepare(request, here=False)
        return
    with workshop() as folder:
        archive = folder / "image.tar"
        save(name, archive)
        yield Work("docker-archive:image.tar", files={archive.name: archive}, defined=False)


def _base_from_store(site: Site, work: Work, ledger: Ledger, bar: Bar) -> Work:
    """Replaces a base image that the cluster already has with the cluster's copy, to avoid an upload."""
    text = work.texts.get(work.target, "")
    files = dict(work.files)
    for name, path in work.files.items():
        if path.suffix == ".sif" and path.is_file() and f"From: {name}\n" in text:
            base = hash_image(path, ledger, bar)
            if image_present(site, base):
                text = text.replace(f"From: {name}\n", f"From: {base.path(site.layout.images)}\n")
                del files[name]
    return replace(work, files=files, texts={**work.texts, work.target: text}) if text else work
