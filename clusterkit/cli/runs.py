"""`clusterkit status`, `clusterkit logs` and `clusterkit cancel`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunsArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(status)
    app.command()(logs)
    app.command()(cancel)


def status(
    names: RunsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="Also runs that ended long ago.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Show where runs stand.

    State, progress, time left, and why one waits or failed.
    """
    from clusterkit.ui.status import print_json, show_status
    from clusterkit.verbs.status import status as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        report = verb(settings, ledger, names=names or (), everything=everything)
    (print_json if as_json else show_status)(report)


def logs(
    name: Annotated[
        str, typer.Argument(metavar="[RUN]", help="A run id, its beginning, a job id, or `last`.")
    ] = "last",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the run ends; Ctrl-C stops.")
    ] = False,
    lines: Annotated[int, typer.Option("--lines", "-n", min=0, help="How many of the last lines.")] = 50,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="Which start of the run; the newest if left out.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Print a run's log, or follow it."""
    import sys

    from clusterkit.verbs.logs import logs as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        run = ledger.find_one(name)
    for chunk in verb(settings, run, lines=lines, attempt=attempt, follow=follow):
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def cancel(
    names: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Run ids, beginnings, job ids, or `last`.")
    ],
    config: ConfigOption = None,
) -> None:
    """End runs; what they have written stays."""
    from clusterkit.ui.status import show_cancelled
    from clusterkit.verbs.cancel import cancel as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        show_cancelled(verb(settings, ledger, names))
