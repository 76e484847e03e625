"""`clusterkit build`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import ConfigOption, JsonOption, load, native_words, open_ledger
from clusterkit.cli.ui.console import note, out, print_document, say, warn
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.config.options import NATIVE, NATIVE_OPTION
from clusterkit.units import format_bytes, plural

if TYPE_CHECKING:
    from clusterkit.commands.build import Built
    from clusterkit.images.building.packages import PackageChanges


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
    print_definition: Annotated[
        bool, typer.Option("--print", help="Print the Apptainer definition only; build nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the image file if it exists.")] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Build the trainer image, or convert a Docker image.

    The trainer image holds only dependencies; your code travels separately, as a snapshot.
    """
    from clusterkit.commands import build as command

    request = command.Request(bootstrap=bootstrap, source=source, torch=torch, definition=definition)
    if print_definition:
        typer.echo(command.definition_text(request), nl=False)
        return
    if cluster is None and native:
        raise typer.BadParameter(f"{NATIVE_OPTION} needs a build on a cluster: --cluster NAME")
    if cluster is not None and output is not None:
        raise typer.BadParameter(f"--cluster {cluster} keeps the image on the cluster: leave {output} out")
    settings = load(config)
    with open_ledger(settings) as ledger:
        if cluster is None:
            output = output or Path("clusterkit-trainer.sif")
            built = command.build_here(
                settings, request, output, ledger, force=force, say=note, bar=transfer_bar
            )
        else:
            options = native_words(native)
            where = settings.cluster(cluster)
            note("this takes several minutes")
            built = command.build_there(
                settings, where, request, ledger, native=options, say=note, bar=transfer_bar
            )
    (print_json if as_json else show_built)(built)


def print_json(built: Built) -> None:
    """Prints the same as JSON."""
    print_document(
        {
            "schema": 1,
            "where": built.where,
            "digest": built.image.digest,
            "bytes": built.image.bytes,
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
    say(f"  {format_bytes(built.image.bytes)}{held}")
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
