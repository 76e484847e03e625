"""Downloads snapshots from a cluster and verifies every file against the snapshot id."""

from __future__ import annotations

import shutil
from pathlib import Path

from clusterkit.errors import RunError
from clusterkit.site import Site
from clusterkit.snapshots.snapshot import ManifestEntry, address, entry_of, parse_manifest, unpack_manifest
from clusterkit.transport.base import ProgressCallback, SyncOptions


def fetch(site: Site, identity: str, home: Path, *, progress: ProgressCallback | None = None) -> Path:
    """Download a snapshot, unless it was downloaded before.

    Args:
        site: the cluster that has it.
        identity: the snapshot's id.
        home: the local folder for snapshots.
        progress: called with each progress report.

    Returns:
        The snapshot's folder, with `manifest.gz` and the tree, `project` or `bundle`.

    Raises:
        RunError: the cluster no longer has it, or its content does not match its id.
        TransportError: the connection failed.
    """
    folder = home / identity
    if folder.is_dir():
        return folder
    there = f"{site.layout.snapshots}/{identity}"
    if site.transport.run(["test", "-d", there], check=False).returncode != 0:
        raise RunError(
            f"{site.transport.where}: the code {there} is no longer there",
            hint="`clusterkit rerun ARCHIVE` does not need it, if the run was exported before; "
            "`clusterkit submit` starts a new run with the working tree",
        )
    part = home / f".{identity}.part"
    shutil.rmtree(part, ignore_errors=True)
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    site.transport.pull(f"{there}/", part, options=SyncOptions(mode="u+w"), progress=progress)
    check(part, identity)
    part.rename(folder)
    return folder


def check(folder: Path, identity: str) -> dict[str, ManifestEntry]:
    """Verify a snapshot against its id.

    Returns:
        Its files by path in the folder.

    Raises:
        RunError: a file is missing, damaged or unexpected.
    """
    entries = listed(folder, identity)
    for name, entry in entries.items():
        if _entry(folder / name) != entry:
            raise RunError(f"{folder / name}: missing, or different from snapshot {identity}")
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if (path.is_symlink() or not path.is_dir()) and name not in entries and name != "manifest.gz":
            raise RunError(f"{path}: does not belong to snapshot {identity}")
    return entries


def listed(folder: Path, identity: str) -> dict[str, ManifestEntry]:
    """The files in a snapshot's manifest, by path in its folder.

    Raises:
        RunError: the manifest is missing or does not match the snapshot's id.
    """
    try:
        data = unpack_manifest((folder / "manifest.gz").read_bytes())
    except OSError:
        data = b""
    if address(data) != identity:
        raise RunError(f"{folder}: the list of the files of snapshot {identity} is missing or damaged")
    return parse_manifest(data)


def _entry(path: Path) -> ManifestEntry | None:
    """The manifest entry for a path; None when it cannot be read."""
    try:
        return entry_of(path, path.lstat())
    except OSError:
        return None
