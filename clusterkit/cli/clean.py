"""`clusterkit clean`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from clusterkit.cli.common import (
    ConfigOption,
    OnlyClusterOption,
    RemoveNothingOption,
    RunsArgument,
    YesOption,
    load,
    open_ledger,
)
from clusterkit.cli.ui.console import note, out, plural, warn
from clusterkit.cli.ui.lines import plain_table, warn_of_silence
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.cli.ui.removal import may_remove
from clusterkit.errors import ConfigError, TransportError
from clusterkit.units import format_bytes, parse_duration

if TYPE_CHECKING:
    from clusterkit.commands.clean import Cleaned, Removables


def clean(
    runs: RunsArgument = None,
    cluster: OnlyClusterOption = None,
    older: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs in which nothing has changed for so long, e.g. 30d."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the newest checkpoint, from which a run could go on.")
    ] = False,
    dry_run: RemoveNothingOption = False,
    yes: YesOption = False,
    config: ConfigOption = None,
) -> None:
    """Delete from the cluster what has already come home.

    Each file is compared by its SHA-256 first. Records, metrics and short logs stay; asks first.
    """
    from clusterkit.commands.clean import CleanRequest
    from clusterkit.commands.clean import clean as command

    try:
        seconds = float(parse_duration(older)) if older else None
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--older: {error}", hint="write a time, e.g. 30d or 12h") from None
    request = CleanRequest(tuple(runs or ()), cluster, everything, seconds)
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger:
        agrees = ask_first(dry_run=dry_run, yes=yes)
        code = show_cleaned(command(settings, request, ledger, agrees=agrees, bar=transfer_bar))
    raise typer.Exit(code)


_NAMED = 5
"""The maximum number of files to name."""


def ask_first(*, dry_run: bool, yes: bool) -> Callable[[Sequence[Removables]], bool]:
    """Returns a callback that shows what would be removed and asks for confirmation."""

    def agrees(found: Sequence[Removables]) -> bool:
        out.print(_table(found))
        _say_what_stays(found)
        going = sum(one.removable.bytes for one in found)
        where = ", ".join(dict.fromkeys(one.run.cluster for one in found if one.removable.files))
        return may_remove("clean", going, where, dry_run=dry_run, yes=yes)

    return agrees


def show_cleaned(done: Cleaned) -> int:
    """Prints the outcome; returns the command's exit code."""
    if done.agreed:
        count = sum(size > 0 for size in done.freed.values())
        out.print(f"{format_bytes(sum(done.freed.values()))} freed, of {plural(count, 'run')}")
    elif not any(one.removable.files for one in done.found):
        note("nothing to remove: what lies on the cluster and here is small, or needed to go on")
        _say_what_stays(done.found)
    for path in done.different[:_NAMED]:
        warn("stays, for it is not what lies here:", f" {path}")
    if len(done.different) > _NAMED:
        warn(f"and {len(done.different) - _NAMED} more")
    for run_id, why in done.left.items():
        warn(f"{run_id} is left alone:", f" {why}")
    for run_id, why in done.failed.items():
        warn(f"{run_id} could not be cleaned:", f" {why}", colour="red")
    warn_of_silence(done.silent)
    return TransportError.exit_code if done.silent or done.failed else 0


def _table(found: Sequence[Removables]) -> Table:
    table = plain_table("run", "goes", "files", "stays", right=("goes", "files"))
    for one in found:
        mine = one.removable
        if mine.files:
            saved = f"{mine.newest}  {format_bytes(mine.newest_bytes)}" if mine.newest else ""
            table.add_row(
                Text(one.run.run_id), format_bytes(mine.bytes), str(len(mine.files)), Text(saved, style="dim")
            )
    return table


def _say_what_stays(found: Sequence[Removables]) -> None:
    newest = sum(one.removable.newest_bytes for one in found)
    absent = sum(one.removable.absent_bytes for one in found)
    if newest:
        note(f"{format_bytes(newest)} stay: the newest checkpoints, to go on from (--all takes them too)")
    if absent:
        note(
            f"{format_bytes(absent)} stay: they are not here, or are needed by what stays "
            "(`clusterkit sync-results --checkpoints all` brings them)"
        )
