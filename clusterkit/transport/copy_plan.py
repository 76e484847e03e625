"""Decides on two listings what a transfer without rsync moves, and what gives way to it. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from clusterkit.errors import TransportError
from clusterkit.folders import PARTIAL_DIR
from clusterkit.transport.base import SyncOptions

FILE, FOLDER, LINK = "f", "d", "l"

_MODE = re.compile(
    r"(?P<only>[DF]?)(?:(?P<octal>[0-7]{3,4})|(?P<who>[ugoa]*)(?P<how>[-+=])(?P<what>[rwxX]*))"
)
_WHO = {"u": 0o700, "g": 0o070, "o": 0o007}
_WHAT = {"r": 0o444, "w": 0o222, "x": 0o111}


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
        """An archive has whole seconds only, so times are compared by them."""
        return self.mtime_ns // 1_000_000_000


Listing = Mapping[str, CopyEntry]
"""By path relative to the root; the root itself is not in it."""


def select(source: Listing, options: SyncOptions, *, pulling: bool) -> dict[str, CopyEntry]:
    """Returns what of a source goes, parents first; no link that leads out of what is pulled.

    Raises:
        TransportError: something is said to lie in what is no folder, such as a link, through which it would
            be written elsewhere.
    """
    asked = frozenset(options.files_from or ())
    ways = frozenset(with_parents(asked)) if options.files_only else frozenset()
    chosen: dict[str, CopyEntry] = {}
    for name, entry in sorted(source.items()):
        if entry.kind not in (FILE, FOLDER, LINK) or _excluded(name, entry, options.exclude):
            continue
        if entry.kind == LINK and pulling and _leads_out(name, entry.target):
            continue
        if options.files_only and not (
            name in asked if entry.kind == FILE else entry.kind == FOLDER and name in ways
        ):
            continue
        if options.max_size is not None and entry.kind == FILE and entry.size > options.max_size:
            continue
        parent = posixpath.dirname(name)
        if parent and (parent not in chosen or chosen[parent].kind != FOLDER):
            raise TransportError(
                f"{name!r} is listed without the folder it lies in", hint="run the same command again"
            )
        chosen[name] = entry
    return chosen


def with_parents(names: Iterable[str]) -> tuple[str, ...]:
    """Names and the folders they lie in, parents first."""
    paths = set(names)
    for name in tuple(paths):
        while name := posixpath.dirname(name):
            paths.add(name)
    return tuple(sorted(paths))


def same_size(chosen: Listing, others: Listing) -> set[str]:
    """Returns the names of files that have the same size in both."""
    return {
        name
        for name, entry in chosen.items()
        if entry.kind == FILE and (old := others.get(name)) and (old.kind, old.size) == (FILE, entry.size)
    }


def removals(
    chosen: Listing, source: Listing, target: Listing, options: SyncOptions
) -> list[tuple[str, CopyEntry]]:
    """Returns what a target loses, deepest first.

    These are the things in the way of one of another kind, with all below them, and with `delete` what the
    source lacks. What the source has and keeps back stays, but for what is excluded there alone, being of
    another kind.
    """
    in_the_way = {name for name, old in target.items() if name in chosen and chosen[name].kind != old.kind}
    gone = []
    for name, old in sorted(target.items(), reverse=True):
        parents = with_parents([name])[:-1]
        below = any(parent in in_the_way for parent in parents)
        looked_into = all(
            parent in chosen and chosen[parent].kind == FOLDER for parent in parents if parent in source
        )
        other = source.get(name)
        hidden = other is None or _excluded(name, other, options.exclude)
        unwanted = options.delete and hidden and looked_into and not _excluded(name, old, options.exclude)
        if below or unwanted or name in in_the_way:
            gone.append((name, old))
    return gone


def changed(mode: int, spec: str | None, *, folder: bool) -> int:
    """Returns a mode after an rsync --chmod value such as "D700,F600" or "Dgo=,Fgo=,Fu-w".

    >>> oct(changed(0o755, "D700,F600", folder=True)), oct(changed(0o755, "Fgo=,Fu-w", folder=False))
    ('0o700', '0o500')

    Raises:
        ValueError: a part of it is none that is known here.
    """
    for part in spec.split(",") if spec else ():
        change = _MODE.fullmatch(part)
        if change is None:
            raise ValueError(f"not a mode that can be set: {part!r}")
        if change["only"] not in ("", "D" if folder else "F"):
            continue
        if change["octal"]:
            mode = int(change["octal"], 8)
            continue
        who = sum(_WHO[letter] for letter in set((change["who"] or "a").replace("a", "ugo")))
        what = sum(_WHAT[letter] for letter in set(change["what"]) - {"X"})
        if "X" in change["what"] and (folder or mode & 0o111):
            what |= _WHAT["x"]
        if change["how"] == "-":
            mode &= ~(who & what)
        else:
            mode = (mode & ~who if change["how"] == "=" else mode) | (who & what)
    return mode


def _excluded(name: str, entry: CopyEntry, patterns: Sequence[str]) -> bool:
    """Returns whether a name or a folder on the way to it stays out."""
    parts = name.split("/")
    for pattern in patterns:
        wanted = pattern.strip("/").split("/")
        is_folder = len(parts) > len(wanted) or entry.kind == FOLDER
        if (
            len(parts) >= len(wanted)
            and all(map(fnmatchcase, parts, wanted))
            and (is_folder or not pattern.endswith("/"))
        ):
            return True
    return PARTIAL_DIR in parts  # rsync leaves folders of this name alone; here it is reserved


def _leads_out(name: str, target: str) -> bool:
    below = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
    return not target or target.startswith("/") or below == ".." or below.startswith("../")
