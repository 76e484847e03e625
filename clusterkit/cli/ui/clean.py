"""What clean asks before, and says after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table
from rich.text import Text

from clusterkit.cli.ui.console import err, note, out
from clusterkit.cli.ui.removal import may_remove
from clusterkit.cli.ui.text import format_bytes
from clusterkit.errors import TransportError

if TYPE_CHECKING:
    from clusterkit.commands.clean import Cleaned, Found

_NAMED = 5
"""So many files are named."""


def ask_first(*, dry_run: bool, yes: bool) -> Callable[[Sequence[Found]], bool]:
    """What shows what would go, and asks."""

    def agrees(found: Sequence[Found]) -> bool:
        out.print(_table(found))
        _say_what_stays(found)
        going = sum(one.removable.bytes for one in found)
        where = ", ".join(dict.fromkeys(one.run.cluster for one in found if one.removable.files))
        return may_remove("clean", going, where, dry_run=dry_run, yes=yes)

    return agrees


def show_cleaned(done: Cleaned) -> int:
    """How it went; returns the command's exit code."""
    if done.agreed:
        count = sum(size > 0 for size in done.freed.values())
        runs = "1 run" if count == 1 else f"{count} runs"
        out.print(f"{format_bytes(sum(done.freed.values()))} freed, of {runs}")
    elif not any(one.removable.files for one in done.found):
        note("nothing to remove: what lies on the cluster and here is small, or needed to go on")
        _say_what_stays(done.found)
    for path in done.different[:_NAMED]:
        err.print(f"[yellow]stays, for it is not what lies here:[/] {escape(path)}", soft_wrap=True)
    if len(done.different) > _NAMED:
        err.print(f"[yellow]and {len(done.different) - _NAMED} more[/]")
    for run_id, why in done.left.items():
        err.print(f"[yellow]{escape(run_id)} is left alone:[/] {escape(why)}", soft_wrap=True)
    for run_id, why in done.failed.items():
        err.print(f"[red]{escape(run_id)} could not be cleaned:[/] {escape(why)}", soft_wrap=True)
    for cluster, cause in done.silent.items():
        err.print(f"[yellow]{cluster} gives no answer:[/]", end=" ")
        err.print(cause, markup=False, soft_wrap=True)
    return TransportError.exit_code if done.silent or done.failed else 0


def _table(found: Sequence[Found]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("run", no_wrap=True)
    table.add_column("goes", justify="right", no_wrap=True)
    table.add_column("files", justify="right", no_wrap=True)
    table.add_column("stays", no_wrap=True)
    for one in found:
        mine = one.removable
        if mine.files:
            saved = f"{mine.newest}  {format_bytes(mine.newest_bytes)}" if mine.newest else ""
            table.add_row(
                Text(one.run.run_id), format_bytes(mine.bytes), str(len(mine.files)), Text(saved, style="dim")
            )
    return table


def _say_what_stays(found: Sequence[Found]) -> None:
    newest = sum(one.removable.newest_bytes for one in found)
    absent = sum(one.removable.absent_bytes for one in found)
    if newest:
        note(f"{format_bytes(newest)} stay: the newest checkpoints, to go on from (--all takes them too)")
    if absent:
        note(
            f"{format_bytes(absent)} stay: they are not here, or are needed by what stays "
            "(`clusterkit sync-results --checkpoints all` brings them)"
        )
