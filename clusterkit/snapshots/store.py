"""The snapshots on a cluster: what is there, and bringing a new one, sharing what did not change."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import cached_property

from clusterkit.errors import ClusterkitError, TransportError
from clusterkit.site import Inquiry, Site
from clusterkit.snapshots import manifest
from clusterkit.snapshots.manifest import Entry
from clusterkit.snapshots.snapshot import Snapshot, Tree
from clusterkit.transport.base import ProgressCallback, SyncOptions, Transferred


@dataclass(frozen=True)
class Standing:
    """How a snapshot stands to what a cluster has."""

    snapshot: Snapshot
    project_there: bool
    bundle_there: bool
    basis: str | None = None
    """Id of the snapshot there to share unchanged files with."""
    basis_manifest: bytes = b""

    @property
    def present(self) -> bool:
        """Whether nothing is missing."""
        return self.project_there and self.bundle_there

    @cached_property
    def missing(self) -> dict[str, Entry]:
        """The files that would be sent, by name in the manifests."""
        found: dict[str, Entry] = {}
        if not self.project_there:
            wanted = manifest.parse(self.snapshot.project.manifest)
            found = manifest.missing(wanted, manifest.parse(self.basis_manifest))
        if not self.bundle_there:
            found |= manifest.parse(self.snapshot.bundle.manifest)
        return found

    @property
    def bytes_to_send(self) -> int:
        """Size of the files that would be sent."""
        return sum(entry.bytes for entry in self.missing.values())


def inquiry(snapshot: Snapshot, *, basis: str | None = None, use: bool = False) -> Inquiry:
    """What `look` asks a cluster, with the same arguments."""
    return Inquiry("snapshots", _LOOK, (snapshot.id, snapshot.bundle.id, basis or "", "use" if use else ""))


def look(site: Site, snapshot: Snapshot, *, basis: str | None = None, use: bool = False) -> Standing:
    """Ask a cluster, in one command at most, what of a snapshot it has.

    Args:
        site: the cluster.
        snapshot: what is wanted there.
        basis: id of the snapshot to compare with, if it is there; else the newest one.
        use: the snapshot is about to be used: `gc` leaves it alone for a while, and partial folders of
            uploads that broke off more than a day ago are removed. Without it nothing changes there.

    Raises:
        TransportError: the cluster gave no answer.
    """
    result = site.ask(inquiry(snapshot, basis=basis, use=use))
    if result.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot read {site.layout.snapshots}: {result.reason}")
    first, _, rest = result.stdout.partition(b"\n")
    project, bundle, *newest = first.decode().split()
    return Standing(
        snapshot, project == "yes", bundle == "yes", newest[0] if newest else None, manifest.unpack(rest)
    )


def publish(site: Site, standing: Standing, *, progress: ProgressCallback | None = None) -> Transferred:
    """Bring a snapshot to the cluster; what is there is left alone.

    Unchanged files are hard-linked against the basis, so that many submits cost one copy. A folder
    appears under its name only when it is whole.

    Raises:
        ClusterkitError: a file changed while it was sent; the name stays free.
        TransportError: the cluster cannot be written to, or the connection failed.
    """
    snapshot, sent = standing.snapshot, []
    if not standing.bundle_there:
        sent.append(_bring(site, snapshot.bundle, "bundle", None, progress))
    if not standing.project_there:
        sent.append(_bring(site, snapshot.project, "project", standing.basis, progress))
    return Transferred(sum(one.files for one in sent), sum(one.bytes for one in sent), snapshot.bytes)


def _bring(
    site: Site, tree: Tree, name: str, basis: str | None, progress: ProgressCallback | None
) -> Transferred:
    """Send one tree to a partial folder and give it its name."""
    snapshots = site.layout.snapshots
    final = f"{snapshots}/{tree.id}"
    part = f"{snapshots}/.{tree.id}.{secrets.token_hex(4)}.part"
    previous = f"{snapshots}/{basis}/{name}" if basis else None
    # By content: to rsync's quick check an edit of the same size within one second looks unchanged.
    options = SyncOptions(files_from=tree.files, link_dest=previous, checksum=True, mode=site.sharing.tree)
    sent = Transferred(0, 0, 0)
    if tree.files:
        sent = site.transport.push(tree.root, f"{part}/{name}", options=options, progress=progress)
    changed = tree.changed()
    result = site.transport.run(
        [
            "sh",
            "-c",
            _DROP if changed else _PUBLISH,
            "sh",
            final,
            part,
            name,
            site.sharing.group or "",
            site.sharing.folder,
        ],
        stdin=manifest.pack(tree.manifest),
        check=False,
    )
    if changed:
        raise ClusterkitError(
            f"{changed}: was changed while the code was sent", hint="run the same command again"
        )
    if result.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot write {final}: {result.reason}")
    return sent


# A snapshot's time is when it was last wanted: gc leaves what is young alone.
# $1 all snapshots, $2 the project's id, $3 the bundle's, $4 the basis that is liked best, $5 whether they are
# used. Prints yes or no for both and the basis, then its packed manifest. A bundle is no basis.
_LOOK = r"""
test -z "$5" || find "$1" -maxdepth 1 -name '.*.part' -mmin +1440 -exec rm -rf {} + 2>/dev/null
test -z "$5" || touch -c "$1/$2" "$1/$3" 2>/dev/null
project=no bundle=no basis=
test ! -d "$1/$2" || project=yes
test ! -d "$1/$3" || bundle=yes
if test "$project" = no; then
    basis=$4
    test -n "$basis" && test -d "$1/$basis" || basis=$(
        ls -t "$1" 2>/dev/null | while read -r name; do
            if test -d "$1/$name/project"; then echo "$name"; break; fi
        done
    )
fi
echo "$project $bundle $basis"
test -z "$basis" || cat "$1/$basis/manifest.gz" 2>/dev/null || true
"""

# $1 the final folder, $2 its partial folder, $3 the tree in it, $4 the group that may read it, $5 the mode of
# its folders then. The manifest comes on standard input. Two uploads of one snapshot may finish together: mv
# then moves the second folder into the first.
_PUBLISH = """
umask 077; mkdir -p "$2/$3" && cat > "$2/manifest.gz" && chmod 400 "$2/manifest.gz" || exit 1
if test -n "$4"; then
    chgrp -R "$4" "$2" && chmod "$5" "$2" "$2/$3" && chmod 440 "$2/manifest.gz" || exit 1
fi
if test -d "$1"; then rm -rf "$2"; else mv "$2" "$1" && rm -rf "$1/${2##*/}"; fi
"""
_DROP = 'cat > /dev/null; rm -rf "$2"'
