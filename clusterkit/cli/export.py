"""`clusterkit export`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import (
    ConfigOption,
    load,
    open_ledger,
)
from clusterkit.cli.ui.console import note, say
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.units import format_bytes

if TYPE_CHECKING:
    from clusterkit.commands.export import Exported


def export(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, a group, or a folder with a run.")
    ] = "last",
    with_image: Annotated[
        bool, typer.Option("--with-image", help="Put the image in, not only its digest.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .tar.zst or .tar.gz, or a folder."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write all that is needed to repeat a run into one archive.

    Its code, its arguments, the image's digest, metrics, logs, the final model, and a README that says how;
    of a group, an archive of each run.
    """
    from clusterkit.commands.export import export as command

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        for exported in command(settings, ledger, name, out, with_image=with_image, bar=transfer_bar):
            show_exported(exported)


def show_exported(done: Exported) -> None:
    """Prints the archive's path on standard output and its contents on standard error."""
    image = "no container"
    if done.image:
        how = "" if done.with_image else " by its digest (--with-image puts it in)"
        image = f"image {done.image[:12]}{how}"
    model = done.model.name if done.model else "no model"
    note(f"{done.files} files, {format_bytes(done.bytes)}, read again and checked; {model}; {image}")
    if not done.ended:
        note("the run is not over: this is how it stands now")
    say(str(done.path))
