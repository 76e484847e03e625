"""`clusterkit cancel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.asking import agree, at_terminal
from clusterkit.backends.jobs import JobState
from clusterkit.cli.common import ConfigOption, JsonOption, RunsArgument, YesOption, load, open_ledger
from clusterkit.cli.ui.console import err, note, print_document, say, warn
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.cli.ui.status import status_table
from clusterkit.errors import ConfigError, SchedulerError, TransportError
from clusterkit.units import plural

if TYPE_CHECKING:
    from clusterkit.commands.cancel import Agree, Cancellation, ChosenRuns
    from clusterkit.runs.status import StatusRow


def cancel(
    names: RunsArgument = None,
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
    yes: YesOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Cancel runs; what they have written stays.

    On a terminal it asks first if several runs, or a running one, would be cancelled.
    """
    from clusterkit.commands.cancel import ChosenRuns
    from clusterkit.commands.cancel import cancel as command

    settings = load(config)
    chosen = ChosenRuns(tuple(names or ()), group=group, everything=everything, cluster=cluster)
    with open_ledger(settings, of=names or ()) as ledger:
        result = command(settings, ledger, chosen, agrees=ask_first(chosen, yes=yes), bar=transfer_bar)
    code = show_cancelled(result, as_json=as_json)
    raise typer.Exit(code)


def print_json(result: Cancellation) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "carried_out": not result.refused,
            "runs": [
                {
                    "run_id": row.run.run_id,
                    "cluster": row.run.cluster,
                    "state_before": row.state.state.value,
                    "cancelled": not _had_ended(row),
                }
                for row in result.done
            ],
            "unclear": [run.run_id for run in result.unclear],
            "silent": result.silent,
        }
    )


def _had_ended(row: StatusRow) -> bool:
    was = row.state.state
    return not was.active and was is not JobState.UNKNOWN


def ask_first(chosen: ChosenRuns, *, yes: bool) -> Agree:
    """Returns a callback that shows the runs to be cancelled and asks, except for a single pending run.

    Without a terminal, runs given by name are cancelled without asking; `--all` and `--group` need `--yes`.
    """

    def agrees(rows: Sequence[StatusRow]) -> bool:
        terminal = at_terminal()
        if yes or (not chosen.many and not terminal):
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

    return agrees


def show_cancelled(result: Cancellation, *, as_json: bool = False) -> int:
    """Prints one line per run, or a JSON object; returns the command's exit code."""
    if as_json:
        print_json(result)
    for row in () if as_json else result.done:
        had_ended = f"had ended already ({row.state.state})"
        say(f"{row.run.run_id}  {had_ended if _had_ended(row) else 'cancelled'}")
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
