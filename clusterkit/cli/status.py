"""`clusterkit status`."""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli import options
from clusterkit.cli.notify import show_faults
from clusterkit.commands.notifier import Notifier
from clusterkit.errors import TransportError
from clusterkit.project import load, open_ledger

if TYPE_CHECKING:
    from clusterkit.config.settings import Settings
    from clusterkit.runs.selection import Selection
    from clusterkit.search.summary import Best
    from clusterkit.transport.ahead import LoginAhead


def status(
    names: options.Runs = None,
    everything: Annotated[bool, typer.Option("--all", help="Include runs that ended long ago.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep updating until all runs have ended; Ctrl-C exits.")
    ] = False,
    expand: Annotated[
        bool, typer.Option("--expand", help="Show each run of a group on its own line.")
    ] = False,
    states: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only runs in this state: running, failed, ..., active, ended."
        ),
    ] = None,
    clusters: Annotated[
        list[str] | None, typer.Option("--cluster", "-c", metavar="NAME", help="Only runs on this cluster.")
    ] = None,
    groups: Annotated[
        list[str] | None, typer.Option("--group", "-g", metavar="GROUP", help="Only runs of this group.")
    ] = None,
    run_names: Annotated[
        list[str] | None, typer.Option("--name", metavar="NAME", help="Only runs with this name.")
    ] = None,
    profiles: Annotated[
        list[str] | None,
        typer.Option("--profile", "-p", metavar="PROFILE", help="Only runs with this profile."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs submitted since then, e.g. 2d, 12h or 2026-01-31."),
    ] = None,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Show the state of your runs.

    State, progress, time left, why a run waits or failed, and what its time limit will do to it.

    Examples:
      # runs that may still run, and those that ended recently
      clusterkit status
      # until all have ended
      clusterkit status --watch
      # only runs that failed in the last two days
      clusterkit status --state failed --since 2d
      # for scripts
      clusterkit status last --json

    See also: clusterkit why, clusterkit logs, status.md
    """
    from datetime import UTC, datetime

    from clusterkit.runs.selection import Selection, parse_since, parse_states
    from clusterkit.search.summary import read_bests

    selection = Selection(
        states=parse_states(states or ()),
        clusters=frozenset(clusters or ()),
        groups=frozenset(groups or ()),
        names=frozenset(run_names or ()),
        profiles=frozenset(profiles or ()),
        since=parse_since(since, datetime.now(UTC)) if since else None,
    )
    settings = load(config)
    home = settings.project_dir / ".clusterkit"
    with open_ledger(settings, only_reads=True, of=names or ()) as ledger, ExitStack() as stack:
        notifier = Notifier(settings, ledger)
        stack.callback(show_faults, notifier)
        if watch:
            from clusterkit.cli.ui.watch import show_watch
            from clusterkit.runs.watching import watch as looks

            seen = looks(settings, ledger, names=names or (), selection=selection, ended=notifier.tell)
            show_watch(
                seen,
                expand=expand or bool(groups),
                as_json=as_json,
                foot=notifier.foot,
                bests=lambda: read_bests(home),
            )
            return
        login = None if names else _log_in_ahead(settings, selection, stack)

        from clusterkit.cli.ui.status import print_json, show_status
        from clusterkit.runs.status import query_runs

        report = query_runs(
            settings,
            ledger,
            names=names or (),
            everything=everything,
            selection=selection,
            login=login,
            ended=notifier.tell,
        )
    bests = read_bests(home)
    if as_json:
        print_json(report, bests=bests)
    else:
        show_status(report, expand=expand or bool(groups))
        _note_bests(bests, {row.run.group for row in report.rows})
    if report.nothing_learnt:
        raise TransportError(
            f"no run is known here, and {', '.join(report.silent)} gives no answer",
            hint="restore the connection, then try again: there may be runs",
        )


def _note_bests(bests: Mapping[str, Best], groups: Set[str]) -> None:
    """Prints a line for each group that is a search and has a best trial."""
    for group, best in bests.items():
        if group in groups:
            from clusterkit.cli.ui.console import note
            from clusterkit.cli.ui.lines import best_line

            note(best_line(best))


def _log_in_ahead(
    settings: Settings, selection: Selection, stack: ExitStack
) -> tuple[str, LoginAhead] | None:
    """Starts a login that is needed in any case, which then runs during the remaining imports."""
    from clusterkit.site import log_in_ahead

    cluster = settings.cluster(min(selection.clusters, default=None))
    if cluster.here:
        return None
    return cluster.name, stack.enter_context(log_in_ahead(cluster))
