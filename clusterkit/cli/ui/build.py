"""What build says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusterkit.cli.ui.console import err, note, out
from clusterkit.cli.ui.text import format_bytes

if TYPE_CHECKING:
    from clusterkit.commands.build import Built
    from clusterkit.images.building.packages import Changes

_SHOWN = 40


def show_built(built: Built) -> None:
    """Where the image is, its size and digest, and what changed since the build before."""
    out.print(built.where, markup=False, soft_wrap=True)
    held = f", {built.packages} package{'' if built.packages == 1 else 's'}" if built.packages else ""
    out.print(f"  sha256 {built.image.digest}", markup=False, soft_wrap=True)
    out.print(f"  {format_bytes(built.image.bytes)}{held}", markup=False)
    if built.changes is not None:
        _show_changes(built.changes)
    if built.hidden_by:
        err.print(
            f"[yellow]not used yet:[/] the settings name an image of this machine, {built.hidden_by}; "
            "take `image` out of the cluster to use the one built there",
            soft_wrap=True,
        )


def say(line: str) -> None:
    """A line of the build's own output."""
    note(line)


def _show_changes(changes: Changes) -> None:
    if not changes:
        out.print("  the same packages as in the build before")
        return
    lines = [
        *(f"+ {name} {version}" for name, version in sorted(changes.added.items())),
        *(f"- {name} {version}" for name, version in sorted(changes.removed.items())),
        *(f"~ {name} {old} -> {new}" for name, (old, new) in sorted(changes.changed.items())),
    ]
    out.print("  since the build before:")
    for line in lines[:_SHOWN]:
        out.print(f"    {line}", markup=False, soft_wrap=True)
    if len(lines) > _SHOWN:
        out.print(f"    and {len(lines) - _SHOWN} more")
