"""`clusterkit export`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.ui.console import note, print_document, say, transfer_bar
from clusterkit.project import load, open_ledger
from clusterkit.units import format_bytes, plural

if TYPE_CHECKING:
    from clusterkit.commands.export import Exported


def export(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="A run, a group, or a folder with a run.")
    ] = "last",
    with_image: Annotated[
        bool, typer.Option("--with-image", help="Include the image itself, not only its digest.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="A .tar.zst or .tar.gz file to write, or a folder."),
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Write all that is needed to repeat a run to one archive.

    Holds the code, the arguments, the image's digest, metrics, logs, the final model, and a README with
    instructions. For a group, writes one archive per run.

    Examples:
      clusterkit export last
      # including the image
      clusterkit export last --with-image -o paper.tar.zst

    See also: clusterkit rerun, sharing.md
    """
    from clusterkit.commands.export import export as command

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        archives = []
        for exported in command(settings, ledger, name, out, with_image=with_image, bar=transfer_bar):
            show_exported(exported, as_json=as_json)
            archives.append(exported)
    if as_json:
        print_json(archives)


def show_exported(done: Exported, *, as_json: bool = False) -> None:
    """Prints the archive's path on standard output and its contents on standard error."""
    image = "no container"
    if done.image:
        how = "" if done.with_image else " by its digest (--with-image includes it)"
        image = f"image {done.image[:12]}{how}"
    model = done.model.name if done.model else "no model"
    note(f"{plural(done.files, 'file')}, {format_bytes(done.bytes)}, verified; {model}; {image}")
    if not done.ended:
        note("the run has not ended; the archive holds its current state")
    if not as_json:
        say(str(done.path))


def print_json(archives: Sequence[Exported]) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "archives": [
                {
                    "path": str(done.path),
                    "bytes": done.bytes,
                    "files": done.files,
                    "ended": done.ended,
                    "model": done.model and done.model.name,
                    "image": done.image,
                    "with_image": done.with_image,
                }
                for done in archives
            ],
        }
    )
