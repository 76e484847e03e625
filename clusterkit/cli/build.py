"""`clusterkit build`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(build)


def build(
    output: Annotated[Path, typer.Argument(help="Where to write the image.", metavar="IMAGE.sif")] = Path(
        "clusterkit-trainer.sif"
    ),
    bootstrap: Annotated[
        str, typer.Option(help="How the image starts: docker, debootstrap or localimage.")
    ] = "docker",
    source: Annotated[
        str | None, typer.Option("--from", help="Base: a Docker image, a Debian suite, or a .sif file.")
    ] = None,
    print_definition: Annotated[
        bool, typer.Option("--print", help="Print the Apptainer definition and build nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing image.")] = False,
) -> None:
    """Build the trainer image with Apptainer.

    It holds dependencies only; code comes with the snapshot.
    """
    from clusterkit.ui.console import note
    from clusterkit.verbs import build as verb

    request = verb.Request(bootstrap=bootstrap, source=source)
    if print_definition:
        typer.echo(verb.definition(request), nl=False)
        return
    note(f"building {output} with {bootstrap}; this takes minutes")
    built = verb.build(request, output, force=force)
    typer.echo(f"{built.path}  {built.bytes / 2**20:.0f} MiB")
