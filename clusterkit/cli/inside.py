"""`clusterkit shell` and `clusterkit top`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(shell)


def shell(
    name: Annotated[str, typer.Argument(metavar="RUN", help="A run id, its beginning, a job id, or `last`.")],
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="Run this instead of a shell.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Open a shell beside a running program.

    In the job's allocation and container, with the program's environment and working directory.
    """
    from clusterkit.ui.inside import own_terminal, show_entry
    from clusterkit.verbs.shell import shell as verb

    settings = load(config)
    with open_ledger(settings) as ledger:
        (run,) = ledger.find([name])
    terminal = own_terminal(needed=not command)
    status = verb(settings, run, command or (), terminal=terminal, on_entry=show_entry(quiet=bool(command)))
    raise typer.Exit(status if status >= 0 else 128 - status)
