"""Moving files without rsync: the steps of `copy_plan`, taken between two sides."""

from __future__ import annotations

import logging
import posixpath
import time
from collections.abc import Callable, Iterator
from functools import cache

from clusterkit.errors import TransportError
from clusterkit.transport import faults, rsync
from clusterkit.transport.base import (
    MissingFileError,
    ProgressCallback,
    SyncOptions,
    TransferProgress,
    Transferred,
)
from clusterkit.transport.copy_plan import (
    FILE,
    FOLDER,
    CopyEntry,
    Steps,
    select,
    steps,
    to_compare,
    with_parents,
)
from clusterkit.transport.modes import changed
from clusterkit.transport.sides import Side

_REPORT_SECONDS = 0.2


@cache
def say_once(where: str) -> None:
    """Tell the user that this is the slow road, once."""
    logging.getLogger("clusterkit").warning(
        "rsync is not installed on %s: files travel without it, which is slower", where
    )


def copy(
    source: Side,
    origin: str,
    target: Side,
    goal: str,
    options: SyncOptions,
    progress: ProgressCallback | None = None,
    *,
    pulling: bool,
) -> Transferred:
    """Copy a file onto a file, or a folder's contents into a folder. As rsync would, with these differences.

    A changed file is sent whole (its common beginning is kept with `inplace` and `append`); times are
    kept to the second over SFTP; `compress` does nothing.

    Args:
        source: the side that is read.
        origin: absolute path there; one that ends with a slash is a folder.
        target: the side that is written.
        goal: absolute path there.
        options: as for rsync.
        progress: called with each report.
        pulling: the source is not trusted: links that leave its tree are skipped.

    Raises:
        MissingFileError: the source, or a file of `files_from`, does not exist.
        TransportError: a side cannot be read or written, or the connection failed.
    """
    rsync.files_from_input(options)  # checks the paths
    top = source.entry(origin.rstrip("/") or "/")
    if top is None:
        raise MissingFileError(f"{origin} does not exist on {source.where}")
    if top.kind == FOLDER:
        return _Copy(source, target, options, progress, pulling=pulling).tree(origin, goal)
    there = target.entry(goal)
    if there is not None and there.kind == FOLDER:
        raise TransportError(f"{goal} on {target.where} is a folder, and {origin} is a file")
    return _Copy(source, target, options, progress, pulling=pulling).file(origin, top, goal)


class _Copy:
    def __init__(
        self,
        source: Side,
        target: Side,
        options: SyncOptions,
        progress: ProgressCallback | None,
        *,
        pulling: bool,
    ) -> None:
        self._source, self._target, self._options = source, target, options
        self._progress, self._pulling = progress, pulling
        self._begun = self._reported = time.monotonic()
        self._done = self._sent = self._total = 0
        self._root = ""
        self._alias: dict[str, str] = {}
        self._partial_folders: dict[str, dict[str, CopyEntry]] = {}
        self._shared: dict[str, str] = {}

    def file(self, origin: str, entry: CopyEntry, goal: str) -> Transferred:
        """A single file; a link means what it points to."""
        folder, name = posixpath.split(goal)
        self._root, self._alias = posixpath.dirname(origin), {name: posixpath.basename(origin)}
        self._make(folder)
        goes = {name: entry}
        return self._take(goes, goes, self._target.listing(folder, follow=False, only=[name]), folder, {})

    def tree(self, origin: str, goal: str) -> Transferred:
        """The contents of a folder."""
        options, self._root = self._options, origin.rstrip("/")
        only = None if options.files_from is None else [name.rstrip("/") for name in options.files_from]
        found = self._source.listing(self._root, follow=options.follow_links, only=only)
        missing = next((name for name in only or () if name not in found), None)
        if missing is not None:
            raise MissingFileError(f"{self._root}/{missing} does not exist on {self._source.where}")
        chosen = select(found, options, pulling=self._pulling)
        self._make(goal)
        among = None if options.delete or only is None else with_parents(only)
        old = self._target.listing(goal, follow=False, only=among)
        done = self._take(chosen, found, old, goal, self._basis(chosen, only))
        top = self._source.entry(self._root) if only is None else None
        if top is not None:
            mode = changed(top.mode, options.mode, folder=True) if options.mode else top.mode
            self._settle(goal, mode, top.mtime_ns)
        return done

    def _basis(self, chosen: dict[str, CopyEntry], only: list[str] | None) -> dict[str, CopyEntry]:
        """What the `link_dest` folders have: of each name the first of the right size, or the first."""
        found: dict[str, CopyEntry] = {}
        for folder in self._options.link_dest:
            for name, entry in self._target.listing(folder, follow=False, only=only).items():
                wanted = chosen[name].size if name in chosen else None
                if name not in found or found[name].size != wanted == entry.size:
                    found[name], self._shared[name] = entry, folder
        return found

    def _origin(self, name: str) -> str:
        return f"{self._root}/{self._alias.get(name, name)}"

    def _take(
        self,
        chosen: dict[str, CopyEntry],
        found: dict[str, CopyEntry],
        old: dict[str, CopyEntry],
        goal: str,
        basis: dict[str, CopyEntry],
    ) -> Transferred:
        todo = self._steps(chosen, found, old, goal, basis)
        self._total = sum(chosen[name].size for name in todo.send)
        self._change(lambda: self._lay_out(todo, chosen, goal), goal)
        for name in todo.send:
            self._send(self._origin(name), chosen[name], f"{goal}/{name}", old.get(name), todo.modes[name])
        for name in todo.settle:
            self._settle(f"{goal}/{name}", todo.modes[name], chosen[name].mtime_ns)
        for folder in self._partial_folders:
            self._target.remove(f"{folder}/{rsync.PARTIAL_DIR}", folder=True)
        for name in reversed(todo.touched_folders(chosen, old)):  # what is made in a folder changes its time
            self._settle(f"{goal}/{name}", todo.modes[name], chosen[name].mtime_ns)
        if todo.send:
            self._report(last=True)
        return Transferred(len(todo.send), self._sent, todo.total_bytes)

    def _steps(
        self,
        chosen: dict[str, CopyEntry],
        found: dict[str, CopyEntry],
        old: dict[str, CopyEntry],
        goal: str,
        basis: dict[str, CopyEntry],
    ) -> Steps:
        """The plan; files that only content can tell are read for it, on both sides."""
        there = to_compare(chosen, old, self._options)
        beside = to_compare(chosen, basis, self._options)
        both = sorted({*there, *beside})
        ours = dict(
            zip(both, self._source.digests(self._root, [self._alias.get(n, n) for n in both]), strict=True)
        )
        theirs = dict(zip(there, self._target.digests(goal, there), strict=True))
        shares: dict[str, str] = {}
        for folder in self._options.link_dest:
            names = [name for name in beside if self._shared[name] == folder]
            shares |= zip(names, self._target.digests(folder, names), strict=True)
        return steps(
            chosen,
            found,
            old,
            basis,
            self._options,
            same=lambda name: name in theirs and theirs[name] == ours[name],
            same_as_basis=lambda name: name in shares and shares[name] == ours[name],
        )

    def _lay_out(self, todo: Steps, chosen: dict[str, CopyEntry], goal: str) -> None:
        for name, folder in todo.remove:
            self._target.remove(f"{goal}/{name}", folder=folder)
        for name in todo.folders:
            self._target.make_folder(f"{goal}/{name}")
        for name in todo.links:
            self._target.make_link(f"{goal}/{name}", chosen[name].target)
        for name in todo.hard_links:
            self._target.hard_link(f"{goal}/{name}", f"{self._shared[name]}/{name}")

    def _send(self, origin: str, entry: CopyEntry, goal: str, old: CopyEntry | None, mode: int) -> None:
        """One file; in place, or through a partial file that is kept when this breaks off."""
        in_place = self._options.inplace or self._options.append
        folder, name = posixpath.split(goal)
        partial = goal if in_place else f"{folder}/{rsync.PARTIAL_DIR}/{name}"
        if not in_place:
            if folder not in self._partial_folders:
                self._make(f"{folder}/{rsync.PARTIAL_DIR}")
                names = self._target.listing(f"{folder}/{rsync.PARTIAL_DIR}", follow=False)
                self._partial_folders[folder] = names
            old = self._partial_folders[folder].get(name)
        start = self._common(origin, partial, entry, old)
        self._done += start
        self._change(
            lambda: self._target.write(partial, start, self._pieces(origin, start, entry.size)), goal
        )
        self._settle(partial, mode, entry.mtime_ns)
        if not in_place:
            self._change(lambda: self._target.rename(partial, goal), goal)

    def _common(self, origin: str, path: str, entry: CopyEntry, old: CopyEntry | None) -> int:
        """How many bytes at the beginning are there already, and right."""
        if old is None or old.kind != FILE or not 0 < old.size <= entry.size:
            return 0
        theirs = self._target.prefix_digest(path, old.size)
        return old.size if theirs == self._source.prefix_digest(origin, old.size) else 0

    def _pieces(self, origin: str, start: int, end: int) -> Iterator[bytes]:
        for piece in self._read(origin, start, end):
            self._sent += len(piece)
            self._done += len(piece)
            limit = self._options.bandwidth_limit
            if limit:
                time.sleep(max(0.0, self._begun + self._sent / limit - time.monotonic()))
            if self._progress is not None and time.monotonic() - self._reported > _REPORT_SECONDS:
                self._report()
            yield piece

    def _read(self, origin: str, start: int, end: int) -> Iterator[bytes]:
        try:
            yield from self._source.read(origin, start, end)
        except OSError as error:
            raise faults.unreadable(origin, error.strerror or str(error), where=self._source.where) from error

    def _report(self, *, last: bool = False) -> None:
        self._reported = time.monotonic()
        done = self._total if last else self._done
        if self._progress is not None:
            rate = self._sent / max(self._reported - self._begun, 1e-3)
            self._progress(TransferProgress(done, self._total, rate))

    def _make(self, folder: str) -> None:
        self._change(lambda: self._target.make_folder(folder), folder)

    def _settle(self, path: str, mode: int, mtime_ns: int) -> None:
        self._change(lambda: self._target.settle(path, mode, mtime_ns), path)

    def _change(self, work: Callable[[], None], path: str) -> None:
        """Do something that may fail on either side, and say it the way rsync's faults are said."""
        try:
            work()
        except OSError as error:
            raise faults.unwritable(path, _reason(error), where=self._target.where) from error


def _reason(error: OSError) -> str:
    words = error.strerror or str(error)
    return f"{words} (is the disk or the quota full?)" if words == "Failure" else words
