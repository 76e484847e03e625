"""Remembers, for each live session, the files on which project folder and working copy agreed last.

It is kept on this machine: a cluster cannot make a change here look like none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from clusterkit.errors import RunError
from clusterkit.folders import locked, make_private, replace_file
from clusterkit.results.work_plan import Files
from clusterkit.runs.ledger import LedgerRun
from clusterkit.snapshots.snapshot import (
    ManifestEntry,
    address,
    pack_manifest,
    parse_manifest,
    render_manifest,
    unpack_manifest,
)
from clusterkit.transport.base import Transport

_FOLDER = "live"
_TREE = "project/"


def begin(home: Path, run_id: str, transport: Transport, snapshot: str, identity: str) -> None:
    """Remember the files of the snapshot that a live session starts with.

    Args:
        home: the project's private folder.
        run_id: of the session.
        transport: the open connection.
        snapshot: the snapshot's folder on the cluster.
        identity: the snapshot's id, which its list of files must match.

    Raises:
        RunError: the list of files on the cluster is damaged.
        TransportError: it cannot be read.
    """
    data = unpack_manifest(transport.read(f"{snapshot}/manifest.gz"))
    if address(data) != identity:
        raise RunError(f"{transport.where}: the list of the files of snapshot {identity} is damaged")
    entries = parse_manifest(data)
    save(home, run_id, {name.removeprefix(_TREE): entry for name, entry in entries.items()})


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """Only one exchange of a project works at a time; others wait."""
    make_private(home / _FOLDER)
    with locked(home / _FOLDER, wait=True):
        yield


def save(home: Path, run_id: str, files: Files) -> None:
    """Replace what is remembered of a session, atomically."""
    make_private(home / _FOLDER)
    replace_file(_file(home, run_id), pack_manifest(render_manifest(files)), mode=0o600)


def load(home: Path, run_id: str) -> dict[str, ManifestEntry]:
    """The files on which both sides agreed last; links are among them.

    Raises:
        RunError: the run is no live session of this project folder, or what was remembered is damaged.
    """
    try:
        packed = _file(home, run_id).read_bytes()
    except FileNotFoundError:
        raise RunError(
            f"{run_id} has no working copy that this folder exchanges files with",
            hint="`clusterkit dev --live` starts a job with one",
        ) from None
    data = unpack_manifest(packed)
    if packed and not data and packed != pack_manifest(b""):
        raise RunError(
            f"{_file(home, run_id)}: damaged", hint="copy files with `clusterkit ssh-config` instead"
        )
    return parse_manifest(data)


def newest(home: Path, runs: Sequence[LedgerRun]) -> LedgerRun:
    """The newest live session.

    Raises:
        RunError: there is none.
    """
    live = [run for run in runs if _file(home, run.run_id).exists()]
    if not live:
        raise RunError(
            "this project has no live session",
            hint="`clusterkit dev --live` starts a job with a working copy",
        )
    return max(live, key=lambda run: run.submitted)


def _file(home: Path, run_id: str) -> Path:
    return home / _FOLDER / f"{run_id}.gz"
