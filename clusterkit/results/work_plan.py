"""Plans an exchange between a project folder and the working copy of a live session. Pure.

A file that has changed on one side since the last exchange may travel; one that has changed on both may not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from clusterkit.snapshots.snapshot import ManifestEntry

Files = Mapping[str, ManifestEntry]
"""Regular files, by relative POSIX path."""


@dataclass(frozen=True)
class WorkPlan:
    """What an exchange in one direction would do."""

    send: tuple[str, ...]
    """Files to copy to the target."""
    remove: tuple[str, ...]
    """Files to remove from the target."""
    conflicts: tuple[str, ...]
    """Files that stay as they are, because both sides have changed them."""
    deleted: tuple[str, ...]
    """Files that only the source has deleted, and that stay at the target unless `delete` is given."""

    @property
    def differing(self) -> tuple[str, ...]:
        """All files that the source has changed, and the target has not got."""
        return tuple(sorted({*self.send, *self.remove, *self.conflicts, *self.deleted}))


def plan_exchange(
    base: Files,
    source: Files,
    target: Files,
    *,
    apart: Collection[str] = (),
    delete: bool = False,
    force: bool = False,
) -> WorkPlan:
    """Compare both sides with the last exchange.

    Args:
        base: the files on which both sides agreed last.
        source: the files of the side to copy from.
        target: the files of the side to copy to.
        apart: files, and folders with all below them, of which a side's state is not known.
        delete: whether deletions travel.
        force: whether the source's state replaces the target's where both have changed.
    """
    send, remove, conflicts, deleted = [], [], [], []
    for name in sorted(base.keys() | source.keys() | target.keys()):
        before, new, old = base.get(name), source.get(name), target.get(name)
        if new in (old, before) or set_apart(name, apart) is not None:
            continue
        if new is None and not delete:
            if old == before:
                deleted.append(name)
        elif old != before and not force:
            conflicts.append(name)
        elif new is None:
            remove.append(name)
        else:
            send.append(name)
    return WorkPlan(tuple(send), tuple(remove), tuple(conflicts), tuple(deleted))


def new_base(base: Files, source: Files, target: Files, moved: Collection[str]) -> dict[str, ManifestEntry]:
    """The base after an exchange: what was moved or is alike counts as agreed, all else as before.

    Args:
        base: before the exchange.
        source: the files of the side copied from, before the exchange.
        target: the files of the side copied to, before the exchange.
        moved: names of files that were copied or removed.
    """
    after = dict(base)
    for name in base.keys() | source.keys() | target.keys():
        new = source.get(name)
        if name not in moved and new != target.get(name):
            continue
        if new is None:
            after.pop(name, None)
        else:
            after[name] = new
    return after


def set_apart(name: str, apart: Collection[str]) -> str | None:
    """The path, or the folder on the way to it, that is set apart; None if neither is."""
    while name and name not in apart:
        name = name.rpartition("/")[0]
    return name or None
