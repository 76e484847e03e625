"""`clusterkit shell` and `clusterkit top`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunArgument, RunOrGroupArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(shell)
    app.command()(top)


def shell(
    name: RunArgument,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="After `--`: run this instead of a shell.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Open a shell beside a running program.

    In the job's allocation and container, with the program's environment and working directory.
    """
    from clusterkit.cli.ui.inside import own_terminal, show_entry
    from clusterkit.commands.shell import shell as verb

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        run = ledger.find_one(name)
    terminal = own_terminal(needed=not command)
    status = verb(settings, run, command or (), terminal=terminal, on_entry=show_entry(quiet=bool(command)))
    raise typer.Exit(status if status >= 0 else 128 - status)


def top(
    name: RunOrGroupArgument = "last",
    once: Annotated[bool, typer.Option("--once", help="Print it once.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for scripts, an object a line.")
    ] = False,
    config: ConfigOption = None,
) -> None:
    """Show live what a running run, or a group, uses.

    GPUs, processors, memory and processes, from inside its job; Ctrl-C leaves it.
    """
    from clusterkit.cli.ui.top import is_live, print_json, show_live, show_once
    from clusterkit.commands.top import top as verb
    from clusterkit.commands.top import top_group

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
    once = once or not (as_json or is_live())
    show = print_json if as_json else show_once if once else show_live
    show(verb(settings, runs[0], once=once) if len(runs) == 1 else top_group(settings, runs, once=once))
