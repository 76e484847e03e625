"""`clusterkit diff`, `clusterkit export` and `clusterkit rerun`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.common import (
    ConfigOption,
    OtherProfileOption,
    OtherTimeOption,
    SbatchOption,
    UntilDoneAsBeforeOption,
    changes,
    load,
    open_ledger,
)


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(diff)
    app.command()(export)
    app.command()(rerun)


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
    from clusterkit.cli.ui.diff import print_json, show_diff
    from clusterkit.commands.diff import diff as verb

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[a, b]) as ledger:
        comparison = verb(settings, ledger, a, b)
    (print_json if as_json else show_diff)(comparison)


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
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.cli.ui.share import show_exported
    from clusterkit.commands.export import export as verb

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        for exported in verb(settings, ledger, name, out, with_image=with_image, bar=transfer_bar):
            show_exported(exported)


def rerun(
    name: Annotated[
        str,
        typer.Argument(metavar="RUN|ARCHIVE", help="A run, a folder with one, or an export."),
    ] = "last",
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            "-c",
            metavar="NAME",
            help="Where; the run's cluster, or for an archive the default one.",
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Another seed.")] = None,
    new_name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Another name.")] = None,
    profile: OtherProfileOption = None,
    time: OtherTimeOption = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Train for so many steps.")
    ] = None,
    until_done: UntilDoneAsBeforeOption = None,
    sbatch: SbatchOption = None,
    config: ConfigOption = None,
) -> None:
    """Submit a run once more, as a new one; print its run id.

    With the code, the image and the arguments of that run, whatever the working tree is now.
    """
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.cli.ui.share import show_rerun
    from clusterkit.commands.rerun import rerun as verb

    settings = load(config)
    again = changes(
        settings,
        profile=profile,
        cluster=cluster,
        time=time,
        total_steps=total_steps,
        until_done=until_done,
        sbatch=sbatch,
    )
    with open_ledger(settings, of=[name]) as ledger:
        show_rerun(verb(settings, again, ledger, name, name=new_name, seed=seed, bar=transfer_bar))
