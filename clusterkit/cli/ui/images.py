"""The table of images, the same as JSON, and what a gc asks and says."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.table import Table

from clusterkit.cli.ui.console import note, out
from clusterkit.cli.ui.removal import may_remove
from clusterkit.cli.ui.text import format_bytes

if TYPE_CHECKING:
    from clusterkit.commands.images import Collected, ImageRow, Rubbish, Young

_NAMED = 5
"""So many runs are named."""


def show_images(cluster: str, rows: Sequence[ImageRow]) -> None:
    """One line an image, the last used first."""
    if not rows:
        note(f"no images on {cluster}; `clusterkit deploy` sends one")
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name, right in {"": False, "image": False, "size": True, "last used": False}.items():
        table.add_column(name, justify="right" if right else "left", no_wrap=True)
    table.add_column("runs", overflow="fold")
    for row in rows:
        table.add_row(
            "*" if row.ours else "",
            row.image.digest[:12],
            format_bytes(row.image.bytes),
            f"{datetime.fromtimestamp(row.image.used):%Y-%m-%d %H:%M}",
            "damaged" if row.image.damaged else _runs(row),
        )
    out.print(table)
    note(f"{format_bytes(sum(row.image.bytes for row in rows))} on {cluster}; * is what this project deploys")


def _runs(row: ImageRow) -> str:
    if not row.runs:
        return "none"
    count = f"{len(row.runs)} run{'s' if len(row.runs) > 1 else ''}"
    if not row.unfinished:
        return f"{count}, all ended"
    names = ", ".join(row.unfinished[:_NAMED]) + (", ..." if len(row.unfinished) > _NAMED else "")
    return f"{count}, not ended: {names}"


def print_json(cluster: str, rows: Sequence[ImageRow]) -> None:
    """One object on standard output; see docs/commands.md."""
    images = [
        {
            "digest": row.image.digest,
            "bytes": row.image.bytes,
            "used": row.image.used,
            "damaged": row.image.damaged,
            "ours": row.ours,
            "runs": row.runs,
            "unfinished": row.unfinished,
        }
        for row in rows
    ]
    out.file.write(json.dumps({"schema": 1, "cluster": cluster, "images": images}, indent=2) + "\n")


def ask_first(*, dry_run: bool, yes: bool) -> Callable[[str, Rubbish], bool]:
    """What shows a gc's findings and asks whether they may go."""

    def agrees(cluster: str, rubbish: Rubbish) -> bool:
        for image in rubbish.images:
            why = "damaged" if image.damaged else "no run uses it"
            out.print(f"  image     {image.digest[:12]}  {format_bytes(image.bytes)}  {why}")
        for name in rubbish.snapshots:
            out.print(f"  snapshot  {name[:12]}")
        for kind, name in rubbish.left_over:
            out.print(f"  left over {name}, from an upload ({kind})", markup=False, soft_wrap=True)
        _say_what_is_young(rubbish.young)
        return may_remove("gc", rubbish.bytes, cluster, dry_run=dry_run, yes=yes)

    return agrees


def _say_what_is_young(young: Sequence[Young]) -> None:
    """What no run uses and stays for now, with its age and when it may go."""
    for one in young:
        name = one.name.removeprefix(".damaged-").removeprefix("sha256-")[:12]
        size = f"{format_bytes(one.bytes)}, " if one.bytes is not None else ""
        age = f"used {max(0, one.age) // 60} min ago"
        note(f"stays: {one.kind} {name} ({size}{age}); it can go in {-(-one.left // 60)} min")


def show_collected(done: Collected) -> None:
    """How it went, in a line."""
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
