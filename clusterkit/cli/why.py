"""`clusterkit why`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ConfigOption, RunOrGroupArgument, load, open_ledger


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(why)


def why(
    name: RunOrGroupArgument = "last",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Say why a run waits, failed or is silent.

    One cause, the lines that show it, and the one command to run next. Of a group, how many runs have which
    cause, and one run of each.
    """
    from clusterkit.cli.ui.why import print_json, show_diagnosis
    from clusterkit.commands.why import why as verb

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name]) as ledger:
        runs = ledger.find([name])
        if len(runs) > 1:
            from clusterkit.cli.ui.why_group import print_group_json, show_causes
            from clusterkit.commands.why_group import why_group

            causes = why_group(settings, ledger, runs)
            (print_group_json if as_json else show_causes)(causes)
        else:
            (print_json if as_json else show_diagnosis)(verb(settings, ledger, runs[0]))
