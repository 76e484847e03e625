"""`clusterkit clean`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunsArgument, load, open_ledger
from clusterkit.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(clean)


def clean(
    runs: RunsArgument = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", metavar="NAME", help="Only runs there.")
    ] = None,
    older: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs in which nothing has changed for so long, e.g. 30d."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the newest checkpoint, from which a run could go on.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would go; remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
) -> None:
    """Delete from the cluster what has already come home.

    Each file is compared by its SHA-256 first. Records, metrics and short logs stay; asks first.
    """
    from clusterkit.cli.ui.clean import ask_first, show_cleaned
    from clusterkit.cli.ui.progress import transfer_bar
    from clusterkit.commands.clean import CleanRequest
    from clusterkit.commands.clean import clean as verb
    from clusterkit.units import parse_duration

    try:
        seconds = float(parse_duration(older)) if older else None
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--older: {error}", hint="write a time, e.g. 30d or 12h") from None
    request = CleanRequest(tuple(runs or ()), cluster, everything, seconds)
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger:
        agrees = ask_first(dry_run=dry_run, yes=yes)
        code = show_cleaned(verb(settings, request, ledger, agrees=agrees, bar=transfer_bar))
    raise typer.Exit(code)
