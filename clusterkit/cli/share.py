"""`clusterkit diff`, `clusterkit export` and `clusterkit rerun`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger


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
    profile: Annotated[
        str | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Ask for what this profile asks for."),
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="TIME", help="Another time limit, e.g. 90m, 4h, 1d12h.")
    ] = None,
    total_steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Train for so many steps.")
    ] = None,
    until_done: Annotated[
        bool | None,
        typer.Option(
            "--until-done/--not-until-done",
            help="Go on past the time limit, in as many attempts as it takes; as before if left out.",
        ),
    ] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(metavar="OPTION", help="An sbatch option that wins over all others, e.g. qos=long."),
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Submit a run once more, as a new one; print its run id.

    With the code, the image and the arguments of that run, whatever the working tree is now.
    """
    from clusterkit.errors import ConfigError
    from clusterkit.ui.progress import transfer_bar
    from clusterkit.ui.share import show_rerun
    from clusterkit.units import parse_duration
    from clusterkit.verbs.rerun import RerunRequest
    from clusterkit.verbs.rerun import rerun as verb
    from clusterkit.verbs.resubmission import ResumeRequest

    settings = load(config)
    try:
        seconds = None if time is None else parse_duration(time)
    except ValueError as error:
        raise ConfigError(f"--time: {error}") from None
    changes = ResumeRequest(
        profile=None if profile is None else settings.profile(profile),
        cluster=None if cluster is None else settings.cluster(cluster).name,
        time=seconds,
        total_steps=total_steps,
        until_done=until_done,
        sbatch=tuple(text if text.startswith("-") else f"--{text}" for text in sbatch or ()),
    )
    with open_ledger(settings) as ledger:
        show_rerun(verb(settings, RerunRequest(changes, new_name, seed), ledger, name, bar=transfer_bar))
