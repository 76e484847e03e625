"""`clusterkit doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from clusterkit.cli.common import ClusterOption, ConfigOption, load


def register(app: typer.Typer) -> None:
    """Mount the command."""
    app.command()(doctor)


def doctor(
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Check for this profile; may be repeated."),
    ] = None,
    cluster: ClusterOption = None,
    job: Annotated[
        bool, typer.Option("--job/--no-job", help="Look at a compute node with a job of two minutes at most.")
    ] = True,
    wait: Annotated[
        str, typer.Option("--wait", metavar="TIME", help="How long to wait for that job's start.")
    ] = "3m",
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what is safe to mend; says what was done.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")] = False,
    config: ConfigOption = None,
) -> None:
    """Check everything between here and a container on a node.

    Each check ends as ok, warn or FAIL, with what was seen and the cure. Ends with 1 if one failed.
    """
    from clusterkit.cli.ui.doctor import DoctorList, print_json
    from clusterkit.commands.doctor import Wish
    from clusterkit.commands.doctor import doctor as verb
    from clusterkit.errors import ConfigError
    from clusterkit.transport.questions import ask_on_terminal
    from clusterkit.units import parse_duration

    try:
        seconds = parse_duration(wait)
    except ValueError as error:
        raise ConfigError(f"--wait: {error}") from None
    wish = Wish(cluster, tuple(profile or ()), job=job, fix=fix, wait=seconds)
    with DoctorList(quiet=as_json) as shown:
        sheet = verb(
            lambda: load(config),
            wish,
            on_result=shown.add,
            say=shown.say,
            bar=shown.bar,
            ask=shown.asking(ask_on_terminal),
        )
    if as_json:
        print_json(sheet)
    else:
        shown.end(sheet)
    if not sheet.works:
        raise typer.Exit(1)
