"""What a transfer without rsync has to do: two listings and the options give the steps. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from clusterkit.transport.base import SyncOptions
from clusterkit.transport.filters import Filters
from clusterkit.transport.modes import changed
from clusterkit.transport.rsync import PARTIAL_DIR

FILE, FOLDER, LINK = "f", "d", "l"


class CopyEntry(NamedTuple):
    """One name in a listing."""

    kind: str
    """FILE, FOLDER, LINK, or another letter for what is never moved."""
    mode: int
    size: int
    """Bytes; of a file."""
    mtime_ns: int
    target: str = ""
    """Where a link points to."""

    @property
    def second(self) -> int:
        """SFTP knows whole seconds only, so times are compared by them."""
        return self.mtime_ns // 1_000_000_000


Listing = Mapping[str, CopyEntry]
"""By path relative to the root; the root itself is not in it."""


@dataclass(frozen=True)
class Steps:
    """In the order they are taken; names are relative to the target's root."""

    remove: tuple[tuple[str, bool], ...]
    """Names that are in the way or unwanted, and whether they are folders, deepest first."""
    folders: tuple[str, ...]
    """Folders to make, parents first."""
    links: tuple[str, ...]
    hard_links: tuple[str, ...]
    """Files that the `link_dest` folder has as they are."""
    send: tuple[str, ...]
    settle: tuple[str, ...]
    """Files whose content is right and whose mode or time is not."""
    modes: Mapping[str, int]
    """The final mode of everything that goes but links."""
    total_bytes: int
    """Size of all files looked at."""

    def touched_folders(self, chosen: Listing, target: Listing) -> list[str]:
        """The folders whose mode or time must be set at the end, parents first."""
        names = [*self.folders, *self.links, *self.hard_links, *self.send, *(name for name, _ in self.remove)]
        busy = {posixpath.dirname(name) for name in names}
        found = []
        for name, entry in chosen.items():
            old = target.get(name)
            differs = old is None or (old.mode, old.second) != (self.modes.get(name), entry.second)
            if entry.kind == FOLDER and (differs or name in busy):
                found.append(name)
        return found


def select(source: Listing, options: SyncOptions, *, pulling: bool) -> dict[str, CopyEntry]:
    """What of a source goes: filters, the list of files, and no link that leads out of what is pulled."""
    # rsync leaves folders of this name alone; here it is reserved
    filters = Filters(include=options.include, exclude=(*options.exclude, PARTIAL_DIR))
    asked = frozenset(options.files_from or ())
    ways = frozenset(with_parents(tuple(asked))) if options.files_only else frozenset()
    chosen = {}
    for name, entry in sorted(source.items()):
        if entry.kind not in (FILE, FOLDER, LINK) or not filters.goes(name, folder=entry.kind == FOLDER):
            continue
        if entry.kind == LINK and pulling and not options.follow_links and _leads_out(name, entry.target):
            continue
        if options.files_only and not (
            name in asked if entry.kind == FILE else entry.kind == FOLDER and name in ways
        ):
            continue
        if options.max_size is not None and entry.kind == FILE and entry.size > options.max_size:
            continue
        chosen[name] = entry
    return chosen


def to_compare(chosen: Listing, target: Listing, options: SyncOptions) -> tuple[str, ...]:
    """The files that only their content can tell: those of the same size, where `checksum` is asked for."""
    if not options.checksum:
        return ()
    return tuple(name for name, entry in chosen.items() if _same_size(entry, target.get(name)))


def steps(
    chosen: Listing,
    source: Listing,
    target: Listing,
    basis: Listing,
    options: SyncOptions,
    *,
    same: Callable[[str], bool],
    same_as_basis: Callable[[str], bool],
) -> Steps:
    """Compare what goes with what is there.

    Args:
        chosen: from `select`.
        source: all that the source has; what is there and does not go is not deleted either, but for what
            its filters exclude there alone, being of another kind.
        target: what the target has.
        basis: what the `link_dest` folder has.
        options: of the transfer.
        same: with `checksum`, whether a file there has the same content.
        same_as_basis: likewise for the `link_dest` folder.
    """
    modes = {
        name: changed(entry.mode, options.mode, folder=entry.kind == FOLDER) if options.mode else entry.mode
        for name, entry in chosen.items()
        if entry.kind != LINK
    }

    def unchanged(name: str, old: CopyEntry | None, by_content: Callable[[str], bool]) -> bool:
        entry = chosen[name]
        return _same_size(entry, old) and (
            by_content(name) if options.checksum else old is not None and entry.second == old.second
        )

    folders, links, hard_links, send, settle = [], [], [], [], []
    for name, entry in chosen.items():
        old, shared = target.get(name), basis.get(name)
        if entry.kind == FOLDER:
            if old is None or old.kind != FOLDER:
                folders.append(name)
        elif entry.kind == LINK:
            if old is None or (old.kind, old.target) != (LINK, entry.target):
                links.append(name)
        elif unchanged(name, old, same):
            if old is not None and (old.mode, old.second) != (modes[name], entry.second):
                settle.append(name)
        elif options.append and old is not None and old.kind == FILE and old.size == entry.size:
            settle.append(name)
        elif unchanged(name, shared, same_as_basis) and shared is not None and shared.mode == modes[name]:
            hard_links.append(name)
        else:
            send.append(name)
    return Steps(
        _removals(chosen, source, target, options, {*links, *hard_links}),
        tuple(folders),
        tuple(links),
        tuple(hard_links),
        tuple(send),
        tuple(settle),
        modes,
        sum(entry.size for entry in chosen.values() if entry.kind == FILE),
    )


def with_parents(names: Sequence[str]) -> tuple[str, ...]:
    """Names and the folders they lie in."""
    found = set(names)
    for name in names:
        while name := posixpath.dirname(name):
            found.add(name)
    return tuple(sorted(found))


def _removals(
    chosen: Listing, source: Listing, target: Listing, options: SyncOptions, replaced: set[str]
) -> tuple[tuple[str, bool], ...]:
    """What gives way to something of another kind, with all below it; and with `delete` what is too much."""
    filters = Filters(include=options.include, exclude=(*options.exclude, PARTIAL_DIR))
    in_the_way = {
        name
        for name, old in target.items()
        if name in chosen and (chosen[name].kind != old.kind or name in replaced)
    }
    gone = []
    for name in sorted(target, reverse=True):
        folder = target[name].kind == FOLDER
        parents = with_parents([name])[:-1]
        below = any(parent in in_the_way for parent in parents)
        known = [parent for parent in parents if parent in source]
        looked_into = all(parent in chosen and chosen[parent].kind == FOLDER for parent in known)
        # a folder that is excluded there does not keep a file of its name here
        other = source.get(name)
        hidden = other is None or not filters.goes(name, folder=other.kind == FOLDER)
        unwanted = options.delete and hidden and looked_into and filters.goes(name, folder=folder)
        if below or unwanted or name in in_the_way:
            gone.append((name, folder))
    return tuple(gone)


def _same_size(entry: CopyEntry, old: CopyEntry | None) -> bool:
    return old is not None and entry.kind == old.kind == FILE and entry.size == old.size


def _leads_out(name: str, target: str) -> bool:
    below = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return not target or target.startswith("/") or below == ".." or below.startswith("../")
