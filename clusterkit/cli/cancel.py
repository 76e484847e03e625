"""`clusterkit cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import agree, at_terminal
from clusterkit.backends.jobs import JobState
from clusterkit.cli import options
from clusterkit.cli.ui.console import err, note, print_document, say, transfer_bar, warn
from clusterkit.cli.ui.status import status_table
from clusterkit.errors import ConfigError, SchedulerError, TransportError
from clusterkit.project import load, open_ledger
from clusterkit.units import plural

if TYPE_CHECKING:
    from clusterkit.commands.cancel import Cancellation
    from clusterkit.runs.status import StatusRow


def cancel(
    names: options.Runs = None,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="GROUP", help="All runs of a group, such as a sweep."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All runs of this project that may still run.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", "-c", metavar="NAME", help="With --all: only runs on this cluster."),
    ] = None,
    yes: options.Yes = False,
    as_json: options.Json = False,
    config: options.Config = None,
) -> None:
    """Cancel runs; what they have written stays.

    On a terminal it asks first if several runs, or a running one, would be cancelled.

    Examples:
      # asks first if the run is running
      clusterkit cancel last
      # all runs of a sweep
      clusterkit cancel --group mt10-20260102-030405-k3f9 --yes
      # all runs of this project on that cluster
      clusterkit cancel --all --cluster uni

    See also: clusterkit resume, clusterkit status
    """
    from clusterkit.commands.cancel import cancel_runs, choose, had_ended

    settings = load(config)
    together = everything or group is not None
    with open_ledger(settings, of=names or ()) as ledger:
        runs = choose(ledger, names or (), group=group, everything=everything, cluster=cluster)
        if everything and cluster is not None:
            settings.cluster(cluster)  # raises for an unknown name
        result = cancel_runs(
            settings,
            ledger,
            runs,
            bar=transfer_bar,
            agree=lambda rows: agreed(rows, together=together, yes=yes),
        )
    if together:
        result.done = [row for row in result.done if not had_ended(row)]
    raise typer.Exit(show_cancelled(result, as_json=as_json))


def print_json(result: Cancellation) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "carried_out": not result.refused,
            "runs": result.as_objects(),
            "unclear": [run.run_id for run in result.unclear],
            "silent": result.silent,
        }
    )


def agreed(rows: Sequence[StatusRow], *, together: bool, yes: bool) -> bool:
    """Shows the runs to be cancelled and asks, except for a single pending run.

    Without a terminal, runs given by name are cancelled without asking; `--all` and `--group` need `--yes`.
    """
    terminal = at_terminal()
    if yes or (not together and not terminal):
        return True
    if not terminal:
        raise ConfigError(
            f"this would cancel {plural(len(rows), 'run')}, and there is no terminal to ask on",
            hint="use --yes",
        )
    if len(rows) == 1 and rows[0].state.state is not JobState.RUNNING:
        return True
    err.print(status_table(rows, width=err.width)[0])
    what = "this run" if len(rows) == 1 else f"these {len(rows)} runs"
    return agree(f"Cancel {what}?")


def show_cancelled(result: Cancellation, *, as_json: bool = False) -> int:
    """Prints one line per run, or a JSON object; returns the command's exit code."""
    from clusterkit.commands.cancel import had_ended

    if as_json:
        print_json(result)
    for row in () if as_json else result.done:
        before = f"had ended already ({row.state.state})"
        say(f"{row.run.run_id}  {before if had_ended(row) else 'cancelled'}")
    for cluster, cause in result.silent.items():
        warn(f"{cluster} gives no answer, its runs continue:", f" {cause}")
    for run in result.unclear:
        warn(f"{run.run_id} is still being submitted:", " try again in a minute")
    if result.refused:
        note("nothing was cancelled")
    elif not (result.done or result.silent or result.unclear):
        note("no run of this project is waiting or running")
    if result.silent:
        return TransportError.exit_code
    return SchedulerError.exit_code if result.unclear else 0
