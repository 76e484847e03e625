"""`clusterkit storage clean`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from clusterkit.cli.common import (
    ConfigOption,
    DryRunOption,
    JsonOption,
    OnlyClusterOption,
    RunsArgument,
    YesOption,
    load,
    open_ledger,
)
from clusterkit.cli.ui.console import err, note, out, print_document, warn
from clusterkit.cli.ui.lines import plain_table, warn_of_silence
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.cli.ui.removal import may_remove
from clusterkit.errors import ConfigError, TransportError
from clusterkit.units import format_bytes, parse_duration, plural

if TYPE_CHECKING:
    from rich.console import Console

    from clusterkit.commands.storage_clean import Cleaned, Removables


def storage_clean(
    runs: RunsArgument = None,
    cluster: OnlyClusterOption = None,
    older: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Only runs that have not changed for this time, e.g. 30d."),
    ] = None,
    last_checkpoint: Annotated[
        bool,
        typer.Option("--last-checkpoint", help="Also the newest checkpoint, from which a run could resume."),
    ] = False,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Delete from the cluster what has come home.

    Deletes a file of an ended run only if its SHA-256 equals that of the local copy. Records, metrics and
    short logs stay. The copy of the code that a killed run has left goes, too. Asks first.
    """
    from clusterkit.commands.storage_clean import CleanRequest
    from clusterkit.commands.storage_clean import clean as command

    try:
        seconds = float(parse_duration(older)) if older else None
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--older: {error}", hint="write a time, e.g. 30d or 12h") from None
    request = CleanRequest(tuple(runs or ()), cluster, last_checkpoint, seconds)
    settings = load(config)
    with open_ledger(settings, of=runs or ()) as ledger:
        agrees = ask_first(err if as_json else out, dry_run=dry_run, yes=yes)
        done = command(settings, request, ledger, agrees=agrees, bar=transfer_bar)
    (print_json if as_json else show_cleaned)(done)
    if done.silent or done.failed:
        raise typer.Exit(TransportError.exit_code)


_NAMED = 5
"""The maximum number of files to name."""


def ask_first(to: Console, *, dry_run: bool, yes: bool) -> Callable[[Sequence[Removables]], bool]:
    """Returns a callback that shows what would be removed, on `to`, and asks for confirmation."""

    def agrees(found: Sequence[Removables]) -> bool:
        to.print(_table(found))
        _say_what_stays(found)
        going = sum(one.removable.bytes for one in found)
        where = ", ".join(dict.fromkeys(one.run.cluster for one in found if one.removable.count))
        return may_remove("storage clean", going, where, dry_run=dry_run, yes=yes)

    return agrees


def show_cleaned(done: Cleaned) -> None:
    """Prints the outcome."""
    if done.agreed:
        count = sum(size > 0 for size in done.freed.values())
        out.print(f"{format_bytes(sum(done.freed.values()))} freed, of {plural(count, 'run')}")
    elif not any(one.removable.count for one in done.found):
        note("nothing to remove: the files on both sides are small, or needed to resume")
        _say_what_stays(done.found)
    for path in done.different[:_NAMED]:
        warn("kept, because it differs from the local copy:", f" {path}")
    if len(done.different) > _NAMED:
        warn(f"and {len(done.different) - _NAMED} more")
    for run_id, why in done.left.items():
        warn(f"{run_id} is left alone:", f" {why}")
    for run_id, why in done.failed.items():
        warn(f"{run_id} could not be cleaned:", f" {why}", colour="red")
    warn_of_silence(done.silent)


def print_json(done: Cleaned) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    print_document(
        {
            "schema": 1,
            "carried_out": done.agreed,
            "freed_bytes": sum(done.freed.values()),
            "runs": [_object(one, done.freed.get(one.run.run_id, 0)) for one in done.found],
            "different": done.different,
            "left": done.left,
            "failed": done.failed,
            "silent": done.silent,
        }
    )


def _object(one: Removables, freed: int) -> dict[str, Any]:
    mine = one.removable
    return {
        "run_id": one.run.run_id,
        "cluster": one.run.cluster,
        "files": mine.count,
        "bytes": mine.bytes,
        "code_bytes": mine.code.bytes,
        "freed_bytes": freed,
        "last_checkpoint": mine.newest,
        "last_checkpoint_bytes": mine.newest_bytes,
        "absent_bytes": mine.absent_bytes,
    }


def _table(found: Sequence[Removables]) -> Table:
    table = plain_table("run", "goes", "files", "stays", right=("goes", "files"))
    for one in found:
        mine = one.removable
        if mine.count:
            saved = f"{mine.newest}  {format_bytes(mine.newest_bytes)}" if mine.newest else ""
            table.add_row(
                Text(one.run.run_id), format_bytes(mine.bytes), str(mine.count), Text(saved, style="dim")
            )
    return table


def _say_what_stays(found: Sequence[Removables]) -> None:
    newest = sum(one.removable.newest_bytes for one in found)
    absent = sum(one.removable.absent_bytes for one in found)
    if newest:
        note(f"{format_bytes(newest)} stay: the newest checkpoints (--last-checkpoint removes them, too)")
    if absent:
        note(
            f"{format_bytes(absent)} stay: not downloaded yet, or needed by what stays "
            "(`clusterkit sync-results --checkpoints all` downloads them)"
        )
