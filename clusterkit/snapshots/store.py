"""The snapshots on a cluster: what is there, and bringing a new one, sharing what did not change."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property

from clusterkit.errors import ClusterkitError, TransportError
from clusterkit.site import Site
from clusterkit.snapshots import manifest
from clusterkit.snapshots.manifest import Entry
from clusterkit.snapshots.snapshot import Snapshot
from clusterkit.transport.base import ProgressCallback, SyncOptions, Transferred


@dataclass(frozen=True)
class Standing:
    """How a snapshot stands to what a cluster has."""

    snapshot: Snapshot
    present: bool
    basis: str | None = None
    """Id of the snapshot there to share unchanged files with."""
    basis_manifest: bytes = b""

    @cached_property
    def missing(self) -> dict[str, Entry]:
        """The files that would be sent, by name in the manifest."""
        if self.present:
            return {}
        return manifest.missing(manifest.parse(self.snapshot.manifest), manifest.parse(self.basis_manifest))

    @property
    def bytes_to_send(self) -> int:
        """Size of the files that would be sent."""
        return sum(entry.bytes for entry in self.missing.values())


def look(site: Site, snapshot: Snapshot, *, basis: str | None = None, clean: bool = False) -> Standing:
    """Ask a cluster, in one command, what of a snapshot it has.

    Args:
        site: the cluster.
        snapshot: what is wanted there.
        basis: id of the snapshot to compare with, if it is there; else the newest one.
        clean: remove partial folders of uploads that broke off more than a day ago.
    """
    arguments = [site.layout.snapshots, snapshot.id, basis or "", "clean" if clean else ""]
    result = site.transport.run(["sh", "-c", _LOOK, "sh", *arguments])
    first, _, rest = result.stdout.partition(b"\n")
    if first == b"present":
        return Standing(snapshot, present=True)
    return Standing(
        snapshot, present=False, basis=first.decode() or None, basis_manifest=manifest.unpack(rest)
    )


def publish(site: Site, standing: Standing, *, progress: ProgressCallback | None = None) -> Transferred:
    """Bring a snapshot to the cluster; one that is there is left alone.

    Unchanged files are hard-linked against the basis, so that many submits cost one copy. The
    folder appears under its name only when it is whole.

    Raises:
        ClusterkitError: a file changed while it was sent; the name stays free.
        TransportError: the cluster cannot be written to, or the connection failed.
    """
    snapshot, snapshots = standing.snapshot, site.layout.snapshots
    if standing.present:
        return Transferred(0, 0, snapshot.bytes)
    part = f"{snapshots}/.{snapshot.id}.{secrets.token_hex(4)}.part"
    sent = []
    for name, tree in (("project", snapshot.project), ("bundle", snapshot.bundle)):
        previous = f"{snapshots}/{standing.basis}/{name}" if standing.basis else None
        # By content: to rsync's quick check an edit of the same size within one second looks unchanged.
        options = SyncOptions(
            files_from=tree.files, link_dest=previous, checksum=True, mode=site.sharing.tree
        )
        if tree.files:
            sent.append(site.transport.push(tree.root, f"{part}/{name}", options=options, progress=progress))
    changed = snapshot.project.changed() or snapshot.bundle.changed()
    final = snapshot.path(snapshots)
    script = _DROP if changed else _PUBLISH
    result = site.transport.run(
        ["sh", "-c", script, "sh", final, part, site.sharing.group or "", site.sharing.folder],
        stdin=manifest.pack(snapshot.manifest),
        check=False,
    )
    if changed:
        raise ClusterkitError(
            f"{changed}: was changed while the code was sent", hint="run the same command again"
        )
    if result.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot write {final}: {result.reason}")
    return Transferred(sum(one.files for one in sent), sum(one.bytes for one in sent), snapshot.bytes)


# A snapshot's time is when it was last wanted: gc leaves what is young alone.
# $1 all snapshots, $2 the id, $3 the basis that is liked best, $4 whether to tidy up. Prints "present", or
# the basis and its packed manifest.
_LOOK = r"""
test -z "$4" || find "$1" -maxdepth 1 -name '.*.part' -mmin +1440 -exec rm -rf {} + 2>/dev/null
if test -d "$1/$2"; then touch -c "$1/$2" 2>/dev/null; echo present; exit 0; fi
basis=$3
test -n "$basis" && test -d "$1/$basis" || basis=$(ls -t "$1" 2>/dev/null | head -n 1)
printf '%s\n' "$basis"
test -z "$basis" || cat "$1/$basis/manifest.gz" 2>/dev/null || true
"""

# $1 the snapshot, $2 its partial folder, $3 the group that may read it, $4 the mode of its folders then. The
# manifest comes on standard input. Two uploads of one snapshot may finish together: mv then moves the second
# folder into the first.
_PUBLISH = """
umask 077; mkdir -p "$2" && cat > "$2/manifest.gz" && chmod 400 "$2/manifest.gz" || exit 1
if test -n "$3"; then
    chgrp -R "$3" "$2" && chmod "$4" "$2" "$2/project" "$2/bundle" && chmod 440 "$2/manifest.gz" || exit 1
fi
if test -d "$1"; then rm -rf "$2"; else mv "$2" "$1" && rm -rf "$1/${2##*/}"; fi
"""
_DROP = 'cat > /dev/null; rm -rf "$2"'
