"""Brings run directories home over one connection: one listing, then rsync for what is new."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import RunError, TransportError
from clusterkit.results.check import problems
from clusterkit.results.listing import NO_SUCH_ROOT, Listing, RemoteFile, list_argv, parse_listing
from clusterkit.results.selection import Checkpoints, LocalFile, PullPlan, compare, select
from clusterkit.transport.base import ProgressCallback, SyncOptions, Transport

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_TRIES = 3
_LIST_SECONDS = 300.0


@dataclass(frozen=True)
class PulledRun:
    """What came home of one run."""

    run_id: str
    found: bool
    """Whether the cluster has it."""
    files: int = 0
    """Files that are new or have changed."""
    bytes: int = 0
    """Bytes that are new: the whole of a new file, the tail of one that has grown."""
    total_bytes: int = 0
    """Size of all its files that should be here."""
    problems: tuple[str, ...] = ()
    """What is wrong with what lies here, one line each."""

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
) -> list[PulledRun]:
    """Mirror run directories to `results/<run-id>/`. Safe to interrupt and to repeat.

    Args:
        transport: the open connection.
        runs_root: absolute path of runs/ on the cluster.
        run_ids: the runs, in the order of the result.
        results: the local folder; made with mode 0700 when absent.
        checkpoints: which checkpoints to bring.
        bandwidth_limit: bytes per second at most.
        progress: called with each transfer's reports.

    Raises:
        RunError: a run id is none, or the cluster has no folder of runs.
        TransportError: the connection or the transfer failed.
    """
    for run_id in run_ids:
        if not _RUN_ID.fullmatch(run_id):
            raise RunError(f"{run_id!r} is not a run id")
    if not run_ids:
        return []
    results.mkdir(mode=0o700, parents=True, exist_ok=True)
    new: dict[str, int] = {}
    for left in reversed(range(_TRIES)):
        listing = _list(transport, runs_root, run_ids)
        wanted = select(listing.files, checkpoints)
        local = _local_files(results, wanted)
        plan = compare(wanted, local)
        new = plan.new_bytes(local) | new
        try:
            _move(transport, runs_root, results, plan, bandwidth_limit, progress)
            break
        except TransportError:
            # A live run may have rotated a listed checkpoint away; anything else is not ours to mend.
            vanished = set(plan.files) - set(_list(transport, runs_root, run_ids).files)
            if not left or not vanished:
                raise
    new = {file.path: new[file.path] for file in wanted if file.path in new}
    return [_result(run_id, listing, wanted, new, results) for run_id in run_ids]


def _list(transport: Transport, runs_root: str, run_ids: Sequence[str]) -> Listing:
    argv = list_argv(runs_root, run_ids)
    done = transport.run(argv, check=False, timeout=_LIST_SECONDS)
    if done.returncode == NO_SUCH_ROOT:
        raise RunError(
            f"{transport.where}: there is no {runs_root}, so no run was ever submitted there",
            hint="`clusterkit submit` starts one",
        )
    listing = parse_listing(done.stdout)
    # find also fails when one run is missing or a file vanishes while it looks; only silence is a fault.
    if done.returncode != 0 and not listing.run_ids and not re.search(r"(?i)no such file", done.error_text):
        raise TransportError(f"{transport.where}: the runs cannot be listed: {done.reason}")
    return listing


def _local_files(results: Path, files: Iterable[RemoteFile]) -> dict[str, LocalFile]:
    found = {}
    for file in files:
        try:
            info = os.lstat(results / file.path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISREG(info.st_mode):
            found[file.path] = LocalFile(info.st_size, info.st_mtime_ns)
    return found


def _move(
    transport: Transport,
    runs_root: str,
    results: Path,
    plan: PullPlan,
    bandwidth_limit: int | None,
    progress: ProgressCallback | None,
) -> None:
    groups = ((plan.whole, False, False), (plan.same_second, True, False), (plan.tails, False, True))
    for files, checksum, append in groups:
        if files:
            options = SyncOptions(
                files_from=tuple(file.path for file in files),
                checksum=checksum,
                append=append,
                bandwidth_limit=bandwidth_limit,
                mode="D700,F600",
            )
            transport.pull(runs_root, results, options=options, progress=progress)


def _result(
    run_id: str, listing: Listing, wanted: Sequence[RemoteFile], new: dict[str, int], results: Path
) -> PulledRun:
    if run_id not in listing.run_ids:
        return PulledRun(run_id, found=False)
    mine = [size for path, size in new.items() if path.startswith(f"{run_id}/")]
    refused = [name for name in listing.refused if name.startswith(f"{run_id}/")]
    found = [f"left on the cluster for its odd name: {name}" for name in refused]
    if mine:
        found += problems(results / run_id, run_id)
    total = sum(file.size for file in wanted if file.run_id == run_id)
    return PulledRun(run_id, True, len(mine), sum(mine), total, tuple(found))
