"""Copies files between two sides without rsync."""

from __future__ import annotations

import contextlib
import logging
import posixpath
import time
from collections.abc import Iterator, Sequence
from functools import cache

from clusterkit.errors import TransportError
from clusterkit.folders import PARTIAL_DIR
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
    LINK,
    CopyEntry,
    Listing,
    changed,
    removals,
    same_size,
    select,
    with_parents,
)
from clusterkit.transport.sides import Side

_REPORT_SECONDS = 0.2


@cache
def say_once(missing: str) -> None:
    """Tell the user once that files travel the slow way; `missing` is the cause of a `NoRsyncError`."""
    why = missing.partition(": ")[0]
    logging.getLogger("clusterkit").warning("%s: files are copied without it, which is slower", why)


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
    kept to the second over SFTP.

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
        return _Copy(source, origin.rstrip("/"), target, goal, options, progress).tree(pulling=pulling)
    there = target.entry(goal)
    if there is not None and there.kind == FOLDER:
        raise TransportError(f"{goal} on {target.where} is a folder, and {origin} is a file")
    root, name = posixpath.split(origin)
    folder, new_name = posixpath.split(goal)
    return _Copy(source, root, target, folder, options, progress).file(name, top, new_name)


class _Copy:
    """One transfer from below `root` to below `goal`."""

    def __init__(
        self,
        source: Side,
        root: str,
        target: Side,
        goal: str,
        options: SyncOptions,
        progress: ProgressCallback | None,
    ) -> None:
        self._source, self._root, self._target, self._goal = source, root, target, goal
        self._options, self._progress = options, progress
        self._begun = self._reported = time.monotonic()
        self._done = self._sent = self._total = 0
        self._names_there: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._partial_folders: dict[str, dict[str, CopyEntry]] = {}

    def file(self, name: str, entry: CopyEntry, new_name: str) -> Transferred:
        """A single file; a link means what it points to."""
        self._names_there = {new_name: name}
        self._make(self._goal)
        goes = {new_name: entry}
        return self._take(goes, goes, self._target.listing(self._goal, only=[new_name]), only=None)

    def tree(self, *, pulling: bool) -> Transferred:
        """The contents of a folder."""
        options = self._options
        only = None if options.files_from is None else [name.rstrip("/") for name in options.files_from]
        found = self._source.listing(self._root, only=only)
        missing = next((name for name in only or () if name not in found), None)
        if missing is not None:
            raise MissingFileError(f"{self._root}/{missing} does not exist on {self._source.where}")
        chosen = select(found, options, pulling=pulling)
        self._make(self._goal)
        among = None if options.delete or only is None else with_parents(only)
        done = self._take(chosen, found, self._target.listing(self._goal, only=among), only=only)
        top = self._source.entry(self._root) if only is None else None
        if top is not None:
            self._settle(self._goal, changed(top.mode, options.mode, folder=True), top.mtime_ns)
        return done

    def _take(
        self, chosen: dict[str, CopyEntry], found: Listing, old: Listing, *, only: Sequence[str] | None
    ) -> Transferred:
        """Brings the target to what is chosen.

        Args:
            chosen: what goes, parents first.
            found: all that the source has.
            old: what the target has.
            only: names to look for in the `link_dest` folders; None is all.
        """
        modes = {
            name: changed(entry.mode, self._options.mode, folder=entry.kind == FOLDER)
            for name, entry in chosen.items()
        }
        unchanged = self._unchanged(chosen, old, self._goal)
        if self._options.append:
            unchanged |= same_size(chosen, old)
        shared: dict[str, str] = {}
        for folder in self._options.link_dest:
            left = {name: one for name, one in chosen.items() if name not in unchanged and name not in shared}
            there = self._target.listing(folder, only=only)
            alike = self._unchanged(left, there, folder)
            shared |= {name: folder for name in alike if there[name].mode == modes[name]}
        gone = removals(chosen, found, old, self._options)
        touched = {name for name, _ in gone}
        send = []
        with self._writing(self._goal):
            for name, entry in gone:
                self._target.remove(f"{self._goal}/{name}", folder=entry.kind == FOLDER)
            for name, entry in chosen.items():
                before = old.get(name)
                if name in unchanged or _is_there(entry, before):
                    continue
                touched.add(name)
                if entry.kind == FILE and name not in shared:
                    send.append(name)
                    continue
                path = f"{self._goal}/{name}"
                if before is not None and before.kind == entry.kind:
                    self._target.remove(path, folder=False)
                if entry.kind == FOLDER:
                    self._target.make_folder(path)
                elif entry.kind == LINK:
                    self._target.make_link(path, entry.target)
                else:
                    self._target.hard_link(path, f"{shared[name]}/{name}")
        self._total = sum(chosen[name].size for name in send)
        for name in send:
            self._send(name, chosen[name], old.get(name), modes[name])
        for folder in self._partial_folders:
            self._target.remove(f"{folder}/{PARTIAL_DIR}", folder=True)
        busy = touched | {posixpath.dirname(name) for name in touched}
        for name, entry in reversed(chosen.items()):  # what is made in a folder changes its time
            before = old.get(name)
            mended = before is None or (before.mode, before.second) != (modes[name], entry.second)
            if (name in unchanged and mended) or (entry.kind == FOLDER and (mended or name in busy)):
                self._settle(f"{self._goal}/{name}", modes[name], entry.mtime_ns)
        if send:
            self._report(last=True)
        return Transferred(len(send), self._sent)

    def _unchanged(self, chosen: Listing, others: Listing, folder: str) -> set[str]:
        """The names whose files in a folder of the target are as those that go, by time or by content."""
        names = same_size(chosen, others)
        if not self._options.checksum:
            return {name for name in names if chosen[name].second == others[name].second}
        new = sorted(names - self._digests.keys())
        ours = self._source.digests(self._root, [self._names_there.get(name, name) for name in new])
        self._digests |= zip(new, ours, strict=True)
        theirs = zip(sorted(names), self._target.digests(folder, sorted(names)), strict=True)
        return {name for name, digest in theirs if digest == self._digests[name]}

    def _send(self, name: str, entry: CopyEntry, old: CopyEntry | None, mode: int) -> None:
        """One file; in place, or through a partial file that is kept when this breaks off."""
        origin, goal = f"{self._root}/{self._names_there.get(name, name)}", f"{self._goal}/{name}"
        in_place = self._options.inplace or self._options.append
        folder, last = posixpath.split(goal)
        partial = goal if in_place else f"{folder}/{PARTIAL_DIR}/{last}"
        if not in_place:
            if folder not in self._partial_folders:
                self._make(f"{folder}/{PARTIAL_DIR}")
                names = self._target.listing(f"{folder}/{PARTIAL_DIR}")
                self._partial_folders[folder] = names
            old = self._partial_folders[folder].get(last)
        start = self._common(origin, partial, entry, old)
        self._done += start
        with self._writing(goal):
            self._target.write(partial, start, self._pieces(origin, start, entry.size))
        self._settle(partial, mode, entry.mtime_ns)
        if not in_place:
            with self._writing(goal):
                self._target.rename(partial, goal)

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
        with self._writing(folder):
            self._target.make_folder(folder)

    def _settle(self, path: str, mode: int, mtime_ns: int) -> None:
        with self._writing(path):
            self._target.settle(path, mode, mtime_ns)

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        """What fails inside on either side is said the way rsync's faults are said."""
        try:
            yield
        except OSError as error:
            words = error.strerror or str(error)
            words += " (is the disk or the quota full?)" if words == "Failure" else ""
            raise faults.unwritable(path, words, where=self._target.where) from error


def _is_there(entry: CopyEntry, old: CopyEntry | None) -> bool:
    """Whether a folder or a link needs no change."""
    if old is None or entry.kind != old.kind or entry.kind == FILE:
        return False
    return entry.kind == FOLDER or entry.target == old.target
