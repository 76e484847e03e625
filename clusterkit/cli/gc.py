"""`clusterkit gc`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from clusterkit.cli.common import (
    ClusterOption,
    ConfigOption,
    RemoveNothingOption,
    YesOption,
    load,
    open_ledger,
)
from clusterkit.cli.ui.console import note, out, say
from clusterkit.cli.ui.removal import may_remove
from clusterkit.units import format_bytes

if TYPE_CHECKING:
    from clusterkit.commands.images import Garbage, Rubbish, Young


def gc(
    cluster: ClusterOption = None,
    ended: Annotated[bool, typer.Option("--ended", help="Also what only ended runs used.")] = False,
    dry_run: RemoveNothingOption = False,
    yes: YesOption = False,
    config: ConfigOption = None,
) -> None:
    """Remove images and snapshots that no run uses.

    Never what a waiting or running run uses, or this project deploys; asks first.
    """
    from clusterkit.commands.images import gc as command

    settings = load(config)
    agrees = ask_first(dry_run=dry_run, yes=yes)
    with open_ledger(settings, only_reads=dry_run) as ledger:
        show_collected(command(settings.cluster(cluster), ledger, ended=ended, agrees=agrees))


def ask_first(*, dry_run: bool, yes: bool) -> Callable[[str, Rubbish], bool]:
    """Returns a callback that shows what was found and asks whether to remove it."""

    def agrees(cluster: str, rubbish: Rubbish) -> bool:
        for image in rubbish.images:
            why = "damaged" if image.damaged else "no run uses it"
            out.print(f"  image     {image.digest[:12]}  {format_bytes(image.bytes)}  {why}")
        for name in rubbish.snapshots:
            out.print(f"  snapshot  {name[:12]}")
        for kind, name in rubbish.left_over:
            say(f"  left over {name}, from an upload ({kind})")
        _say_what_is_young(rubbish.young)
        return may_remove("gc", rubbish.bytes, cluster, dry_run=dry_run, yes=yes)

    return agrees


def _say_what_is_young(young: Sequence[Young]) -> None:
    """Lists unused items that are too recent to remove, with their age and when they may be removed."""
    for one in young:
        name = one.name.removeprefix(".damaged-").removeprefix("sha256-")[:12]
        size = f"{format_bytes(one.bytes)}, " if one.bytes is not None else ""
        age = f"used {max(0, one.age) // 60} min ago"
        note(f"stays: {one.kind} {name} ({size}{age}); it can go in {-(-one.left // 60)} min")


def show_collected(done: Garbage) -> None:
    """Prints the outcome on one line."""
    rubbish = done.rubbish
    if not rubbish.things:
        also = " besides" if rubbish.young else ""
        note(f"{done.cluster}: nothing to remove; every image and snapshot{also} is used")
        _say_what_is_young(rubbish.young)
    elif done.removed:
        went = len(rubbish.things) - len(done.kept)
        out.print(f"{done.cluster}: {went} removed, {format_bytes(rubbish.bytes)} freed")
        if done.kept:
            note(f"kept, because somebody began to use it: {', '.join(sorted(done.kept))}")
