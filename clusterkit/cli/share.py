"""`clusterkit diff` and `clusterkit export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(diff)
    app.command()(export)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, or a folder with one.")],
    b: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show what differs between two runs.

    Recipe, profile, arguments, code, image, versions and results; of runs that were not synced all but the
    results.
    """
    from clusterkit.ui.diff import print_json, show_diff
    from clusterkit.verbs.diff import diff as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        comparison = verb(settings, ledger, a, b)
    (print_json if as_json else show_diff)(comparison)


def export(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run, or a folder with one.")] = "last",
    with_image: Annotated[
        bool, typer.Option("--with-image", help="Put the image in, not only its digest.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="A .tar.zst or .tar.gz.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Write all that is needed to repeat a run into one archive.

    Its code, its arguments, the image's digest, metrics, logs, the final model, and a README that says how.
    """
    from clusterkit.ui.progress import transfer_bar
    from clusterkit.ui.share import show_exported
    from clusterkit.verbs.export import export as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        show_exported(verb(settings, ledger, name, out, with_image=with_image, bar=transfer_bar))
