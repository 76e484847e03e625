"""build: build an image with the local Apptainer or in a cluster job, and report what changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import ImageError
from clusterkit.folders import make_ignored, replace_file
from clusterkit.images.building import apptainer
from clusterkit.images.building.packages import PackageChanges, compare
from clusterkit.images.building.work import Request, definition_text, prepare
from clusterkit.images.image import Image
from clusterkit.runs.ledger import Ledger
from clusterkit.runs.secret_values import values_at_hand
from clusterkit.runs.spec import timestamp
from clusterkit.submit.materials import hash_image
from clusterkit.submit.shown import refuse_shown
from clusterkit.transport.base import Bar
from clusterkit.untrusted import read_object, table_of_texts

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings

__all__ = ["Built", "Request", "build_here", "build_there", "definition_text"]


@dataclass(frozen=True)
class Built:
    """A finished image."""

    image: Image
    where: str
    """Its local path, or `cluster:path`."""
    packages: int
    """Number of packages in it; 0 if it could not be inspected."""
    changes: PackageChanges | None
    """Changes since this project's previous build; None without one, or if either cannot be inspected."""
    hidden_by: Path | None = None
    """A local image named in the cluster's settings, which wins over the image just built on the cluster."""


def build_here(
    settings: Settings,
    request: Request,
    output: Path,
    ledger: Ledger,
    *,
    force: bool,
    say: Callable[[str], None],
    bar: Bar,
) -> Built:
    """Build an image with this machine's Apptainer; it gets its final name only when complete.

    Args:
        settings: of the project, which records its last build.
        request: the image to build.
        output: the .sif to write.
        ledger: stores the image's digest, so that `deploy` need not hash it again.
        force: replace an existing file.
        say: called with each line of Apptainer's output.
        bar: opens progress bars.

    Raises:
        ConfigError: the request contradicts itself.
        ImageError: `output` exists, a file is missing, Apptainer is not installed, or the build failed.
    """
    work = prepare(request, here=True)
    _refuse_secrets(settings, request, work=work)
    output = output.absolute()
    if output.exists() and not force:
        raise ImageError(f"{output} exists", hint="--force replaces it")
    say("this takes minutes")
    apptainer.build(work, output, say=say)
    image = hash_image(output, ledger, bar)
    packages = apptainer.packages(output)
    return Built(image, str(output), len(packages), _remember(settings, image, str(output), packages))


def build_there(
    settings: Settings,
    cluster: Cluster,
    request: Request,
    ledger: Ledger,
    *,
    native: tuple[str, ...],
    say: Callable[[str], None],
    bar: Bar,
) -> Built:
    """Build an image on a cluster; arguments and errors as `clusterkit.submit.cluster_build.build_on`."""
    from clusterkit.submit.cluster_build import build_on

    _refuse_secrets(settings, request, native=native, cluster=cluster)
    built = build_on(cluster, request, ledger, native=native, say=say, bar=bar)
    where = f"{cluster.name}:{built.path}"
    hidden = cluster.image if cluster.image and cluster.image.is_file() else None
    changes = _remember(settings, built.image, where, built.packages)
    return Built(built.image, where, len(built.packages), changes, hidden)


def _refuse_secrets(settings: Settings, request: Request, **shown: object) -> None:
    """Raises ConfigError if an image, its build or its job would show a secret's value."""
    own = request.definition
    text = own.read_text(errors="replace") if own and own.is_file() else ""
    refuse_shown(values_at_hand(settings), request=request, definition=text, **shown)


def _remember(
    settings: Settings, image: Image, where: str, packages: dict[str, str]
) -> PackageChanges | None:
    """Record a build in place of the previous one; returns the changes."""
    path = settings.project_dir / ".clusterkit" / "build.json"
    before = read_object(path) or {}
    record = {
        "schema": 1,
        "digest": image.digest,
        "bytes": image.bytes,
        "where": where,
        "built": timestamp(datetime.now(UTC)),
        "packages": packages,
    }
    make_ignored(path.parent)
    replace_file(path, json.dumps(record, indent=1).encode(), mode=0o600)
    old = table_of_texts(before.get("packages"))
    return compare(old, packages) if old and packages else None
