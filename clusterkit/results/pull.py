"""Pulls run directories over one connection: one listing, then rsync for what is new."""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from clusterkit.errors import RunError, TransportError
from clusterkit.folders import make_ignored
from clusterkit.results.check import (
    LocalFiles,
    damaged_checkpoints,
    indistinct,
    present,
    problems,
    second_name,
)
from clusterkit.results.listing import (
    NO_SUCH_ROOT,
    Listing,
    Refused,
    RemoteFile,
    list_argv,
    list_input,
    parent_folders,
    parse_listing,
)
from clusterkit.results.selection import APPENDED, CLEANED, Checkpoints, compare, newest_checkpoints, select
from clusterkit.transport.base import ProgressCallback, SyncOptions, TransferProgress, Transport

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TRIES = 3
_LIST_SECONDS = 300.0
_AT_ONCE = 10_000
"""Most runs that one command lists: the names of more might not fit into a line of `find`."""
_NAMED = 6
"""Most files named as not pulled."""
NOT_HOME = "not synced: "
"""Prefix of a problem that reports a file as not pulled."""
GROWTH = 64 << 20
"""Bytes by which all files together may have grown since they were listed."""


@dataclass(frozen=True)
class PulledRun:
    """The result of pulling one run."""

    run_id: str
    found: bool
    """Whether the cluster has the run."""
    files: int = 0
    """Number of new or changed files."""
    bytes: int = 0
    """New bytes: whole new files, and the tails of files that have grown."""
    total_bytes: int = 0
    """Size of all selected files of the run."""
    problems: tuple[str, ...] = ()
    """Problems of the local run directory, one line each."""
    lost: int = 0
    """Number of them that another sync does not mend by itself: the disk is full, or a checkpoint damaged."""

    @property
    def up_to_date(self) -> bool:
        """Whether nothing was new."""
        return self.found and self.files == 0


def pull_runs(
    transport: Transport,
    *,
    runs_root: str,
    run_ids: Sequence[str],
    results: Path,
    checkpoints: Checkpoints = Checkpoints.LAST,
    bandwidth_limit: int | None = None,
    progress: ProgressCallback | None = None,
    waiting: Callable[[], None] = lambda: None,
) -> list[PulledRun]:
    """Mirrors run directories to `results/<run-id>/`. Safe to interrupt and to repeat.

    Only one process pulls into a folder at a time; a second one waits and then reuses what the first pulled.

    Args:
        transport: the open connection.
        runs_root: absolute path of runs/ on the cluster.
        run_ids: the runs, in the order of the result.
        results: the local folder; created if missing, with mode 0700 and ignored by git.
        checkpoints: the checkpoints to pull.
        bandwidth_limit: in bytes per second.
        progress: called with each progress report.
        waiting: called if another process is pulling into the folder.

    Raises:
        RunError: a run id is invalid, or the cluster has no runs folder.
        TransportError: the connection or the transfer failed, or the cluster's answer cannot be trusted.
    """
    for run_id in run_ids:
        if not RUN_ID.fullmatch(run_id):
            raise RunError(f"{run_id!r} is not a run id")
    if not run_ids:
        return []
    make_ignored(results)
    pull = _Pull(transport, runs_root, results, bandwidth_limit, progress)
    with alone(results, waiting):
        for tries in reversed(range(_TRIES)):
            listing = list_runs(transport, runs_root, run_ids)
            try:
                wanted = pull.bring(listing, checkpoints)
                break
            except TransportError:
                # A live run may have rotated a listed checkpoint away; retrying fixes nothing else.
                vanished = pull.moving - {
                    file.path for file in list_runs(transport, runs_root, run_ids).files
                }
                if not tries or not vanished:
                    raise
    here: dict[str, list[RemoteFile]] = defaultdict(list)
    for file in wanted:
        here[file.run_id].append(file)
    left: dict[str, list[str]] = defaultdict(list)
    for refused in (*listing.refused, *(Refused(path, why) for path, why in pull.faults.items())):
        left[refused.path.partition("/")[0]].append(f"{NOT_HOME}{refused.text}")
    return [pull.result(run_id, listing, here[run_id], left[run_id]) for run_id in run_ids]


@contextmanager
def alone(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the folder's lock, which ends with the process; continue without one if locks are unsupported."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def list_runs(transport: Transport, runs_root: str, run_ids: Sequence[str]) -> Listing:
    """Lists the files of some runs on the cluster.

    Raises:
        RunError: the cluster has no runs folder.
        TransportError: the connection failed, or the answer cannot be trusted.
    """
    parts = [run_ids[begin : begin + _AT_ONCE] for begin in range(0, len(run_ids), _AT_ONCE)]
    listings = [_list_part(transport, runs_root, part) for part in parts]
    return Listing(
        frozenset().union(*(listing.run_ids for listing in listings)),
        tuple(file for listing in listings for file in listing.files),
        tuple(refused for listing in listings for refused in listing.refused),
        tuple(link for listing in listings for link in listing.links),
    )


def _list_part(transport: Transport, runs_root: str, run_ids: Sequence[str]) -> Listing:
    argv = list_argv(runs_root)
    answer = transport.run(argv, stdin=list_input(run_ids), check=False, timeout=_LIST_SECONDS)
    if answer.returncode == NO_SUCH_ROOT:
        raise RunError(
            f"{transport.where}: there is no {runs_root}, so no run was submitted there yet",
            hint="`clusterkit submit` starts one",
        )
    try:
        listing = parse_listing(answer.stdout, frozenset(run_ids))
    except ValueError as error:
        raise TransportError(
            f"{transport.where} lists files it was not asked about: {error}",
            hint="nothing was copied; find out what is run there in place of `find`",
        ) from error
    # find also fails if one run is missing or a file vanishes meanwhile; only empty output is an error.
    if (
        answer.returncode != 0
        and not listing.run_ids
        and not re.search(r"(?i)no such file", answer.error_text)
    ):
        raise TransportError(f"{transport.where}: the runs cannot be listed: {answer.reason}")
    return listing


class _Pull:
    """The state of one pull: files transferred so far, and files that failed."""

    def __init__(
        self,
        transport: Transport,
        runs_root: str,
        results: Path,
        bandwidth_limit: int | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._transport, self._root, self._results = transport, runs_root, results
        self._limit, self._progress = bandwidth_limit, progress
        self.new: dict[str, int] = {}
        """Path -> new bytes of the file."""
        self.faults: dict[str, str] = {}
        """Path -> why the file was not pulled."""
        self.too_large: set[str] = set()
        """Paths of those that do not fit on the disk."""
        self.moving: set[str] = set()
        """Paths of the files that are being transferred."""

    def bring(self, listing: Listing, checkpoints: Checkpoints) -> list[RemoteFile]:
        """Transfers what is new of the selected files; returns those that should now be present."""
        self.too_large.clear()
        paths = (*(file.path for file in listing.files), *(link.path for link in listing.links))
        self.faults = indistinct(self._results, paths)
        listing = replace(
            listing,
            files=tuple(file for file in listing.files if file.path not in self.faults),
            links=tuple(link for link in listing.links if link.path not in self.faults),
        )
        best = None
        if checkpoints is Checkpoints.BEST:  # the evaluations decide which is best, so they are pulled first
            self._move(select(listing.files, Checkpoints.NONE))
            from clusterkit.results.checkpoints import best_steps  # few need it

            best = best_steps(self._results, listing.run_ids)
        cleaned = {file.run_id for file in listing.files if file.inside == CLEANED}
        here = newest_checkpoints(self._results, cleaned)
        wanted = select(listing.files, checkpoints, best=best, newest_here=here)
        self._move(wanted)
        present = [file for file in wanted if file.path not in self.faults]
        self._link(listing, {file.path for file in wanted}, {file.path for file in present})
        return present

    def _link(self, listing: Listing, wanted: Collection[str], present: Collection[str]) -> None:
        """Gives a link's name to the file here that it leads to; records the links that lead to no file."""
        here, paths = LocalFiles(str(self._results)), {file.path for file in listing.files}
        folders = parent_folders(paths)
        ends = {
            link.path: link.target
            for link in listing.links
            if link.target not in paths or link.target in wanted
        }
        free = {file.path for file in here.look(RemoteFile(path, 0, 0) for path in ends)}
        for path, target in ends.items():
            name = target.partition("/")[2]
            if target not in paths:
                folder = target in folders
                what = f"a link to the folder {name}" if folder else f"a link to {name}, which is not there"
                if folder or path not in here.local:
                    self.faults[path] = what
            elif path not in free:
                self.faults[path] = here.blocked[path]
            elif target in present:
                second_name(self._results / target, self._results / path)

    def _move(self, files: Sequence[RemoteFile]) -> None:
        here = LocalFiles(str(self._results))
        plan = compare(files, present(here.results, files))
        free = here.look(transfer.file for transfer in plan)
        large = here.too_large(free) if free else {}
        self.too_large |= large.keys()
        blocked = here.blocked | large
        plan = [transfer for transfer in plan if transfer.file.path not in blocked]
        self.faults |= blocked
        self.moving = {transfer.file.path for transfer in plan}
        self.new = {transfer.file.path: transfer.new for transfer in plan} | self.new
        # Tails come last, so that no log is older than its exit record.
        for checksum, append in ((False, False), (True, False), (False, True)):
            group = [
                transfer.file
                for transfer in plan
                if (transfer.checksum, transfer.append) == (checksum, append)
            ]
            if group:
                options = SyncOptions(
                    files_from=tuple(file.path for file in group),
                    files_only=True,
                    max_size=max(file.size for file in group) + GROWTH,
                    checksum=checksum,
                    append=append,
                    bandwidth_limit=self._limit,
                    mode="D700,F600",
                )
                most = 2 * sum(file.size for file in group) + GROWTH  # rsync may send a file twice
                report = self._bounded(most)
                self._transport.pull(f"{self._root}/", self._results, options=options, progress=report)
        self._check(transfer.file for transfer in plan)

    def _bounded(self, most: int) -> ProgressCallback:
        """Wraps the progress callback to abort a transfer that exceeds `most` bytes."""

        def report(progress: TransferProgress) -> None:
            if progress.done_bytes > most:
                raise TransportError(
                    f"{self._transport.where} sends more than it listed ({progress.done_bytes:,} bytes)",
                    hint="a file grows faster than it can be copied: check what the run writes",
                )
            if self._progress is not None:
                self._progress(progress)

        return report

    def _check(self, files: Iterable[RemoteFile]) -> None:
        """Records an error for each file that is missing, or shorter than listed if append-only."""
        for file in files:
            try:
                info = os.lstat(self._results / file.path)
            except OSError:
                info = None
            short = info is not None and APPENDED.fullmatch(file.inside) and info.st_size < file.size
            if info is None or short or not stat.S_ISREG(info.st_mode):
                self.faults[file.path] = "it changed while it was being copied; sync again"

    def result(
        self, run_id: str, listing: Listing, files: Sequence[RemoteFile], left: Sequence[str]
    ) -> PulledRun:
        """Returns the result for one run.

        Args:
            run_id: of the run.
            listing: what the cluster has.
            files: the run's files that should now be present.
            left: its files that were not pulled, each with the reason.
        """
        lines = [*left[:_NAMED], *([f"{NOT_HOME}{len(left) - _NAMED} more"] if len(left) > _NAMED else [])]
        if run_id not in listing.run_ids:
            return PulledRun(run_id, found=False, problems=tuple(lines))
        new = {file.inside: self.new[file.path] for file in files if file.path in self.new}
        damaged: list[str] = []
        if new:
            lines += problems(self._results / run_id, run_id)
            damaged = damaged_checkpoints(self._results / run_id, new)
        total = sum(file.size for file in files)
        lost = len(damaged) + sum(path.startswith(f"{run_id}/") for path in self.too_large)
        return PulledRun(run_id, True, len(new), sum(new.values()), total, (*lines, *damaged), lost)
