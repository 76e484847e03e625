"""What `work push` and `work pull` have in common: arguments, and what is shown of an exchange."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import load, open_ledger
from clusterkit.cli.ui.console import listed, note, plural, printable, say, warn
from clusterkit.cli.ui.progress import transfer_bar
from clusterkit.errors import RunError

if TYPE_CHECKING:
    from clusterkit.commands.work import Exchanged, Way

_NAMED = 6
"""Most files named in one message."""
_REASONS = 12
"""Most reasons shown why files do not travel."""

SessionArgument = Annotated[
    str | None,
    typer.Argument(metavar="RUN", help="A live session by its run id or the start of one; else the newest."),
]
DeleteOption = Annotated[
    bool, typer.Option("--delete", help="Also delete the files that the other side has deleted.")
]


def run_exchange(
    way: Way, name: str | None, *, delete: bool, force: bool, dry_run: bool, config: Path | None
) -> None:
    """Exchanges files and shows what was done.

    Raises:
        RunError: both sides have changed a file, or as the command.
    """
    from clusterkit.commands.work import WorkRequest, exchange
    from clusterkit.results import work_base

    settings = load(config)
    with open_ledger(settings, only_reads=True, of=[name] if name else []) as ledger:
        run = ledger.find_one(name) if name else work_base.newest(ledger.folder, ledger.runs())
    done = exchange(settings, run, WorkRequest(way, delete, force, dry_run), bar=transfer_bar)
    _show(done, way, dry_run=dry_run)
    if done.conflicts:
        raise _conflict(done, way)


def _show(done: Exchanged, way: Way, *, dry_run: bool) -> None:
    source, target = ("here", "there") if way == "push" else ("there", "here")
    for name in done.sent:
        say(printable(name))
    for name in done.removed:
        say(f"{printable(name)} (deleted)")
    reasons: dict[str, list[str]] = {}
    for name, why in sorted(done.left.items()):
        reasons.setdefault(why, []).append(printable(name))
    for why, names in list(reasons.items())[:_REASONS]:
        warn(listed(names, _NAMED), f": left {source}: {why}")
    if len(reasons) > _REASONS:
        warn("more files", f" are left {source}")
    if done.deleted:
        kept = listed([printable(name) for name in done.deleted], _NAMED)
        note(f"deleted {source}, kept {target}: {kept}; --delete deletes them {target}, too")
    counted = plural(len(done.sent) + len(done.removed), "file")
    verb = "sent to" if way == "push" else "brought home from"
    note(f"{counted} {'would be ' if dry_run else ''}{verb} {done.run_id}")


def _conflict(done: Exchanged, way: Way) -> RunError:
    names = listed([printable(name) for name in done.conflicts], _NAMED)
    target = "there" if way == "push" else "here"
    return RunError(
        f"changed both here and there, left as they are: {names}",
        hint=f"`clusterkit work {way} {done.run_id} --force` replaces what is {target}",
    )
