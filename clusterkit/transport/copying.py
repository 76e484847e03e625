"""Copies files between two sides without rsync: what is missing, as two listings say, and nothing twice."""

from __future__ import annotations

import contextlib
import logging
import posixpath
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from clusterkit.errors import TransportError
from clusterkit.folders import PARTIAL_DIR
from clusterkit.transport import faults, rsync
from clusterkit.transport.base import (
    MissingFileError,
    Move,
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
from clusterkit.transport.sides import Arriving, FileChange, ThisMachine
from clusterkit.transport.tarred import There

Side = ThisMachine | There

_REPORT_SECONDS = 0.2


@cache
def say_once(missing: str) -> None:
    """Tells the user once that files travel the slow way; `missing` is the cause of a `NoRsyncError`."""
    why = missing.partition(": ")[0]
    logging.getLogger("clusterkit").warning("%s: files are copied without it, which is slower", why)


def copy(source: Side, target: Side, move: Move) -> Transferred:
    """Copies a file onto a file, or a folder's contents into a folder, as rsync would but for two things.

    A changed file is sent whole (its common beginning is kept with `inplace` and `append`); times are
    kept to the second over ssh. A source that ends with a slash is a folder.

    Raises:
        MissingFileError: the source, or a file of `files_from`, does not exist.
        TransportError: a side cannot be read or written, or the connection failed.
    """
    try:
        return _copy(source, target, move)
    except OSError as error:  # this machine cannot be looked at; what is written has errors of its own
        path = str(error.filename or move.source)
        raise faults.unreadable(path, error.strerror or str(error), where=ThisMachine.where) from error


def _copy(source: Side, target: Side, move: Move) -> Transferred:
    rsync.files_from_input(move.options)  # checks the paths
    top = source.entry(move.source.rstrip("/") or "/")
    if top is None:
        raise MissingFileError(f"{move.source} does not exist on {source.where}")
    if top.kind == FOLDER:
        return _Copy(source, target, move, move.source.rstrip("/"), move.target).tree(top)
    there = target.entry(move.target)
    if there is not None and there.kind == FOLDER:
        raise TransportError(f"{move.target} on {target.where} is a folder, and {move.source} is a file")
    root, name = posixpath.split(move.source)
    goal, new_name = posixpath.split(move.target)
    return _Copy(source, target, move, root, goal).file(name, top, new_name)


@dataclass
class _Copy:
    """One transfer from below `root` to below `goal`."""

    source: Side
    target: Side
    move: Move
    root: str
    goal: str
    done_bytes: int = 0
    """Bytes that are there."""
    sent: int = 0
    total: int = 0
    begun: float = field(default_factory=time.monotonic)
    reported: float = field(default_factory=time.monotonic)
    origins: dict[str, str] = field(default_factory=dict)
    """Names at the source of what is called otherwise at the target."""
    digests: dict[str, str] = field(default_factory=dict)

    def file(self, name: str, entry: CopyEntry, new_name: str) -> Transferred:
        """Copies a single file; a link means what it points to."""
        self.origins = {new_name: name}
        goes = {new_name: entry}
        among = [new_name, _partial(new_name)]
        moved = self._take(goes, goes, self.target.listing(self.goal, only=among), only=None)
        if self.total and not self.done_bytes:
            raise MissingFileError(f"{self.root}/{name} does not exist on {self.source.where}")
        return moved

    def tree(self, top: CopyEntry) -> Transferred:
        """Copies the contents of a folder."""
        options = self.move.options
        only = None if options.files_from is None else [name.rstrip("/") for name in options.files_from]
        entries = self.source.listing(self.root, only=only)
        missing = next((name for name in only or () if name not in entries), None)
        if missing is not None:
            raise MissingFileError(f"{self.root}/{missing} does not exist on {self.source.where}")
        chosen = select(entries, options, pulling=self.move.pulling)
        among = None if options.delete or only is None else [*with_parents(only), PARTIAL_DIR]
        old = self.target.listing(self.goal, only=among)
        return self._take(chosen, entries, old, only=only, top=top if only is None else None)

    def _take(
        self,
        chosen: dict[str, CopyEntry],
        entries: Listing,
        old: Listing,
        *,
        only: Sequence[str] | None,
        top: CopyEntry | None = None,
    ) -> Transferred:
        """Brings the target to what is chosen.

        Args:
            chosen: what goes, parents first.
            entries: all that the source has.
            old: what the target has.
            only: names to look for in the `link_dest` folders; None is all.
            top: the folder whose mode and time the target's gets.
        """
        options = self.move.options
        wanted = {
            name: entry._replace(
                mode=changed(entry.mode, self.move.options.mode, folder=entry.kind == FOLDER)
            )
            for name, entry in chosen.items()
        }
        unchanged = self._unchanged(wanted, old, self.goal)
        if options.append:
            unchanged |= same_size(wanted, old)
        shared: dict[str, str] = {}
        for folder in options.link_dest:
            left = {name: new for name, new in wanted.items() if name not in unchanged and name not in shared}
            there = self.target.listing(folder, only=only)
            alike = self._unchanged(left, there, folder)
            shared |= {name: folder for name in alike if there[name].mode == wanted[name].mode}
        gone = removals(chosen, entries, old, options)
        changes = [
            FileChange("remove folder" if entry.kind == FOLDER else "remove", name) for name, entry in gone
        ]
        touched = {name for name, _ in gone}
        send = []
        for name, entry in wanted.items():
            before = old.get(name)
            if name in unchanged or _is_there(entry, before):
                continue
            touched.add(name)
            if entry.kind == FILE and name not in shared:
                send.append(name)
                continue
            if before is not None and before.kind == entry.kind:
                changes.append(FileChange("remove", name))
            if entry.kind == FOLDER:
                changes.append(FileChange("folder", name))
            elif entry.kind == LINK:
                changes.append(FileChange("link", name, entry.target))
            else:
                changes.append(FileChange("hard link", name, f"{shared[name]}/{name}"))
        in_place = options.inplace or options.append
        arriving = {name: name if in_place else _partial(name) for name in send}
        partial_folders = dict.fromkeys(posixpath.dirname(path) for path in arriving.values() if not in_place)
        changes += [FileChange("folder", folder) for folder in partial_folders]
        with self._writing():
            self.target.change(self.goal, changes)
        arrived = self._send(wanted, old, arriving)
        changes = [FileChange("move", arriving[name], name) for name in arrived if not in_place]
        changes += [FileChange("remove folder", folder) for folder in partial_folders]
        busy = touched | {posixpath.dirname(name) for name in touched}
        for name, entry in reversed(wanted.items()):  # what is made in a folder changes its time
            before = old.get(name)
            mended = before is None or (before.mode, before.second) != (entry.mode, entry.second)
            if (name in unchanged and mended) or (entry.kind == FOLDER and (mended or name in busy)):
                changes.append(FileChange("settle", name, mode=entry.mode, mtime_ns=entry.mtime_ns))
        if top is not None:
            mode = changed(top.mode, options.mode, folder=True)
            changes.append(FileChange("settle", ".", mode=mode, mtime_ns=top.mtime_ns))
        if changes:
            with self._writing():
                self.target.change(self.goal, changes)
        if send:
            self._report(last=True)
        return Transferred(len(arrived), self.sent)

    def _unchanged(self, wanted: Listing, others: Listing, folder: str) -> set[str]:
        """Returns the names whose files in a folder of the target are those that go, by time or content."""
        names = same_size(wanted, others)
        if not self.move.options.checksum:
            return {name for name in names if wanted[name].second == others[name].second}
        new = sorted(names - self.digests.keys())
        ours = self.source.digests(self.root, [self._origin(name) for name in new])
        self.digests |= zip(new, ours, strict=True)
        theirs = zip(sorted(names), self.target.digests(folder, sorted(names)), strict=True)
        return {name for name, digest in theirs if digest == self.digests[name]}

    def _send(self, wanted: Listing, old: Listing, arriving: Mapping[str, str]) -> list[str]:
        """Sends files to the names under which they arrive; returns those that were still there."""
        arrived = self._arrived_before(wanted, old, arriving)
        names = {self._origin(name): name for name in arriving if name not in arrived}
        starts = {
            name: self._common(name, arriving[name], wanted[name], old.get(arriving[name]))
            for name in names.values()
        }
        self.total = sum(wanted[name].size for name in arriving)
        self.done_bytes = sum(wanted[name].size for name in arrived)

        def files() -> Iterator[Arriving]:
            for origin, pieces in stream:
                name = names[origin]
                arrived[name] = None
                self.done_bytes += starts[name]
                read = self._pieces(origin, pieces)
                yield arriving[name], starts[name], wanted[name], read

        reading = {origin: (starts[name], wanted[name].size) for origin, name in names.items()}
        if reading:
            with contextlib.closing(self.source.read(self.root, reading)) as stream, self._writing():
                self.target.write(self.goal, files())
        return list(arrived)

    def _arrived_before(self, wanted: Listing, old: Listing, arriving: Mapping[str, str]) -> dict[str, None]:
        """Returns the files that an earlier transfer has sent whole; one command a side tells of all."""
        names = same_size({path: wanted[name] for name, path in arriving.items()}, old)
        alike = sorted(name for name, path in arriving.items() if path in names)
        ours = self.source.digests(self.root, [self._origin(name) for name in alike])
        theirs = self.target.digests(self.goal, [arriving[name] for name in alike])
        whole = [name for name, our, their in zip(alike, ours, theirs, strict=True) if our == their]
        entries = {arriving[name]: wanted[name] for name in whole}
        if entries:
            settled = [
                FileChange("settle", path, mode=entry.mode, mtime_ns=entry.mtime_ns)
                for path, entry in entries.items()
            ]
            with self._writing():
                self.target.change(self.goal, settled)
        return dict.fromkeys(whole)

    def _common(self, name: str, path: str, entry: CopyEntry, old: CopyEntry | None) -> int:
        """Returns how many bytes at the beginning are there already, and right."""
        if old is None or old.kind != FILE or not 0 < old.size < entry.size:
            return 0
        theirs = self.target.prefix_digest(f"{self.goal}/{path}", old.size)
        ours = self.source.prefix_digest(f"{self.root}/{self._origin(name)}", old.size)
        return old.size if theirs == ours else 0

    def _origin(self, name: str) -> str:
        return self.origins.get(name, name)

    def _pieces(self, origin: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
        try:
            for piece in pieces:
                self.sent += len(piece)
                self.done_bytes += len(piece)
                limit = self.move.options.bandwidth_limit
                if limit:
                    time.sleep(max(0.0, self.begun + self.sent / limit - time.monotonic()))
                if self.move.progress is not None and time.monotonic() - self.reported > _REPORT_SECONDS:
                    self._report()
                yield piece
        except OSError as error:
            path, words = f"{self.root}/{origin}", error.strerror or str(error)
            raise faults.unreadable(path, words, where=self.source.where) from error

    def _report(self, *, last: bool = False) -> None:
        self.reported = time.monotonic()
        done_bytes = self.total if last else self.done_bytes
        if self.move.progress is not None:
            rate = self.sent / max(self.reported - self.begun, 1e-3)
            self.move.progress(TransferProgress(done_bytes, self.total, rate))

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Says what fails at the target the way rsync's faults are said."""
        try:
            yield
        except OSError as error:
            path, words = error.filename or self.goal, error.strerror or str(error)
            raise faults.unwritable(str(path), words, where=self.target.where) from error


def _partial(name: str) -> str:
    """Returns where a file arrives that is not written in place."""
    folder, last = posixpath.split(name)
    return posixpath.join(folder, PARTIAL_DIR, last)


def _is_there(entry: CopyEntry, old: CopyEntry | None) -> bool:
    """Returns whether a folder or a link needs no change."""
    if old is None or entry.kind != old.kind or entry.kind == FILE:
        return False
    return entry.kind == FOLDER or entry.target == old.target
