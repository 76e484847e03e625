"""`clusterkit build`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, out, print_document, say, transfer_bar, warn
from clusterkit.config.options import NATIVE, NATIVE_OPTION, native_words
from clusterkit.errors import ImageError
from clusterkit.folders import make_ignored, replace_file
from clusterkit.hardware import machine_name
from clusterkit.images.building import local
from clusterkit.images.building.packages import compare
from clusterkit.images.building.work import Request, definition_text, prepare
from clusterkit.project import load, open_ledger
from clusterkit.units import format_bytes, plural
from clusterkit.untrusted import read_object, table_of_texts

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.config.settings import Settings
    from clusterkit.images.building.packages import PackageChanges
    from clusterkit.images.image import Image
    from clusterkit.runs.ledger import Ledger


def build(
    output: Annotated[
        Path | None,
        typer.Argument(help="Image file to write; clusterkit-trainer.sif if left out.", metavar="IMAGE.sif"),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(metavar="WAY", help="Bootstrap agent: docker (the default), debootstrap or localimage."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="BASE",
            help="What to build from: a Docker image, a Debian suite or a .sif file; or a finished image to "
            "convert: docker-daemon:NAME, docker-archive:FILE, oci:FOLDER, docker://NAME.",
        ),
    ] = None,
    torch: Annotated[
        str,
        typer.Option(
            metavar="cuda|cpu", help="PyTorch with CUDA, or for the CPU only, which is 2 GB smaller."
        ),
    ] = "cuda",
    definition: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Your own Apptainer definition instead of the trainer's."),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster", "-c", metavar="NAME", help="Build on this cluster, as a job, for use there."
        ),
    ] = None,
    native: Annotated[
        list[str] | None,
        typer.Option(
            NATIVE_OPTION, metavar="OPTION", help=f"An {NATIVE} option for the build job, e.g. partition=cpu."
        ),
    ] = None,
    partition: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The partition for whose nodes to build on a cluster."),
    ] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Of an image that a registry (docker://NAME) has for several architectures, the one for "
            "this: x86_64 or aarch64.",
        ),
    ] = None,
    print_definition: Annotated[
        bool, typer.Option("--print", help="Print the Apptainer definition only; build nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the image file if it exists.")] = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Build the trainer image, or convert a Docker image.

    The trainer image holds only dependencies; your code travels separately, as a snapshot.

    Examples:
      # clusterkit-trainer.sif, with this machine's Apptainer
      clusterkit build
      # as a job on the cluster, for a partition's nodes: needs no Apptainer here
      clusterkit build --cluster uni --partition grace
      # convert a Docker image
      clusterkit build mine.sif --from docker-daemon:mine:latest
      # use your own definition
      clusterkit build mine.sif --definition mine.def

    See also: clusterkit deploy, clusterkit storage list, images.md
    """
    native = [*(native or ()), *([f"partition={partition}"] if partition else ())]
    known = machine_name(arch) if arch else None
    request = Request(bootstrap=bootstrap, source=source, torch=torch, definition=definition, arch=known)
    if print_definition:
        typer.echo(definition_text(request), nl=False)
        return
    if cluster is None and native:
        option = "--partition" if partition else NATIVE_OPTION
        raise typer.BadParameter(f"{option} needs a build on a cluster: --cluster NAME")
    if cluster is not None and output is not None:
        raise typer.BadParameter(f"--cluster {cluster} keeps the image on the cluster: leave {output} out")
    settings = load(config)
    with open_ledger(settings) as ledger:
        if cluster is None:
            output = output or Path("clusterkit-trainer.sif")
            built = build_here(settings, request, output, ledger, force=force)
        else:
            options = native_words(native)
            where = settings.cluster(cluster)
            note("this takes several minutes")
            built = build_there(settings, where, request, ledger, native=options)
    (print_json if as_json else show_built)(built)


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
) -> Built:
    """Builds an image with this machine's Apptainer; it gets its final name only when complete.

    Args:
        settings: of the project, which records its last build.
        request: the image to build.
        output: the .sif to write.
        ledger: stores the image's digest, so that `deploy` need not hash it again.
        force: replace an existing file.

    Raises:
        ConfigError: the request contradicts itself.
        ImageError: `output` exists, a file is missing, Apptainer is not installed, or the build failed.
    """
    from clusterkit.submit.materials import hash_image

    work = prepare(request, here=True)
    _refuse_secrets(settings, request, work=work)
    output = output.absolute()
    if output.exists() and not force:
        raise ImageError(f"{output} exists", hint="--force replaces it")
    note("this takes minutes")
    local.build(work, output, say=note)
    image = hash_image(output, ledger, transfer_bar)
    packages = local.packages(output)
    return Built(image, str(output), len(packages), _remember(settings, image, str(output), packages))


def build_there(
    settings: Settings,
    cluster: Cluster,
    request: Request,
    ledger: Ledger,
    *,
    native: tuple[str, ...],
) -> Built:
    """Builds an image on a cluster; arguments and errors as `clusterkit.submit.cluster_build.build_on`."""
    from clusterkit.submit.cluster_build import build_on

    _refuse_secrets(settings, request, native=native, cluster=cluster)
    built = build_on(cluster, request, ledger, native=native, say=note, bar=transfer_bar)
    where = f"{cluster.name}:{built.path}"
    arch = built.image.arch if cluster.image_by_architecture else ""
    hiding = (path for path in cluster.image_files if not arch or path == cluster.image_file(arch))
    hidden = next(hiding, None)
    changes = _remember(settings, built.image, where, built.packages)
    return Built(built.image, where, len(built.packages), changes, hidden)


def _refuse_secrets(settings: Settings, request: Request, **shown: object) -> None:
    """Raises ConfigError if an image, its build or its job would show a secret's value."""
    from clusterkit.runs.secret_values import values_at_hand

    own = request.definition
    text = own.read_text(errors="replace") if own and own.is_file() else ""
    values_at_hand(settings).refuse_shown(request=request, definition=text, **shown)


def _remember(
    settings: Settings, image: Image, where: str, packages: dict[str, str]
) -> PackageChanges | None:
    """Records a build in place of the previous one; returns the changes."""
    from clusterkit.runs.spec import timestamp

    path = settings.project_dir / ".clusterkit" / "build.json"
    before = read_object(path) or {}
    record = {
        "schema": 1,
        "digest": image.digest,
        "bytes": image.bytes,
        "arch": image.arch,
        "where": where,
        "built": timestamp(datetime.now(UTC)),
        "packages": packages,
    }
    make_ignored(path.parent)
    replace_file(path, json.dumps(record, indent=1).encode(), mode=0o600)
    old = table_of_texts(before.get("packages"))
    return compare(old, packages) if old and packages else None


def print_json(built: Built) -> None:
    """Prints the same as JSON."""
    print_document(
        {
            "schema": 1,
            "where": built.where,
            "digest": built.image.digest,
            "bytes": built.image.bytes,
            "arch": built.image.arch or None,
            "packages": built.packages or None,
            "changes": asdict(built.changes) if built.changes is not None else None,
            "hidden_by": str(built.hidden_by) if built.hidden_by else None,
        }
    )


_SHOWN = 40


def show_built(built: Built) -> None:
    """Prints the image's location, size and digest, and what changed since the previous build."""
    say(built.where)
    held = f", {plural(built.packages, 'package')}" if built.packages else ""
    say(f"  sha256 {built.image.digest}")
    arch = f", for {built.image.arch}" if built.image.arch else ""
    say(f"  {format_bytes(built.image.bytes)}{held}{arch}")
    if built.changes is not None:
        _show_changes(built.changes)
    if built.hidden_by:
        warn(
            "not used yet:",
            f" the settings name an image of this machine, {built.hidden_by}; "
            "take `image` out of the cluster to use the one built there",
        )


def _show_changes(changes: PackageChanges) -> None:
    if not changes:
        out.print("  the same packages as in the previous build")
        return
    lines = [
        *(f"+ {name} {version}" for name, version in sorted(changes.added.items())),
        *(f"- {name} {version}" for name, version in sorted(changes.removed.items())),
        *(f"~ {name} {old} -> {new}" for name, (old, new) in sorted(changes.changed.items())),
    ]
    out.print("  since the previous build:")
    for line in lines[:_SHOWN]:
        say(f"    {line}")
    if len(lines) > _SHOWN:
        out.print(f"    and {len(lines) - _SHOWN} more")
