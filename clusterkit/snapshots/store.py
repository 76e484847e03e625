"""The snapshots on a cluster: looks them up and uploads new ones, hard-linking unchanged files.

Every upload has its own partial folder and hard-links files from interrupted uploads as it does from other
snapshots. So no upload writes where another may be writing, and no foreign file gets into a snapshot.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from clusterkit.errors import ClusterkitError, TransportError
from clusterkit.site import Inquiry, Site
from clusterkit.snapshots.snapshot import (
    ManifestEntry,
    Snapshot,
    Tree,
    missing_files,
    pack_manifest,
    parse_manifest,
    unpack_manifest,
)
from clusterkit.transport import faults
from clusterkit.transport.base import ProgressCallback, SyncOptions, Transferred
from clusterkit.transport.faults import LostError
from clusterkit.untrusted import ordinal

_TRIES = 9
"""A connection that is lost more often during one upload needs the user's attention."""


@dataclass(frozen=True)
class Standing:
    """What a cluster already has of a snapshot."""

    snapshot: Snapshot
    absent: tuple[Tree, ...]
    """The trees that it lacks."""
    basis: str | None = None
    """Id of the snapshot on the cluster to hard-link unchanged files from."""
    basis_manifest: bytes = b""
    begun: tuple[str, ...] = ()
    """Partial folders of interrupted uploads of the same snapshot, newest first."""
    arrived: int = 0
    """Approximate bytes in them."""

    @property
    def present(self) -> bool:
        """Whether nothing is missing."""
        return not self.absent

    @cached_property
    def missing(self) -> dict[str, ManifestEntry]:
        """The files to send, by name in the manifests."""
        wanted = parse_manifest(b"".join(tree.manifest for tree in self.absent))
        return missing_files(wanted, parse_manifest(self.basis_manifest))

    @property
    def bytes_to_send(self) -> int:
        """Size of the files to send, less the bytes that have already arrived."""
        return max(0, sum(entry.bytes for entry in self.missing.values()) - self.arrived)


def inquiry(snapshot: Snapshot, *, basis: str | None = None, use: bool = False) -> Inquiry:
    """The inquiry that `look` sends to a cluster, with the same arguments."""
    trees = (tree.id for tree in snapshot.trees)
    return Inquiry("snapshots", _LOOK, (basis or "", "use" if use else "", *trees))


def look(site: Site, snapshot: Snapshot, *, basis: str | None = None, use: bool = False) -> Standing:
    """Find out, with at most one command, which parts of a snapshot a cluster already has.

    Args:
        site: the cluster.
        snapshot: the wanted snapshot.
        basis: id of the snapshot to compare with; the newest one if the cluster lacks it.
        use: the snapshot is about to be used: protects it from `storage prune` for a while and removes
            useless remains of interrupted uploads. Without it nothing on the cluster changes.

    Raises:
        TransportError: the cluster did not answer.
    """
    result = site.ask(inquiry(snapshot, basis=basis, use=use))
    if result.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot read {site.layout.snapshots}: {result.reason}")
    *lines, packed = result.stdout.split(b"\n", 3)
    absent, newest, (arrived, *begun) = (line.decode().split() for line in lines)
    return Standing(
        snapshot,
        tuple(tree for tree in snapshot.trees if tree.id in absent),
        newest[0] if newest else None,
        unpack_manifest(packed),
        tuple(begun),
        ordinal(arrived) or 0,
    )


def publish(site: Site, standing: Standing, *, progress: ProgressCallback | None = None) -> Transferred:
    """Upload the missing parts of a snapshot to the cluster.

    Unchanged files are hard-linked to the basis, so that many submissions cost one copy. A folder gets its
    final name only when it is complete. After an interruption the next upload sends the rest.

    Raises:
        ClusterkitError: a file changed while it was sent; the snapshot was not published.
        TransportError: the cluster cannot be written to, or the connection failed.
    """
    sent = [_bring(site, tree, standing, progress) for tree in standing.absent]
    return Transferred(sum(one.files for one in sent), sum(one.bytes for one in sent))


def _bring(site: Site, tree: Tree, standing: Standing, progress: ProgressCallback | None) -> Transferred:
    """Send one tree, with a new connection whenever one is lost."""
    begun = [part for part in standing.begun if part.startswith(f".{tree.id}.")]
    basis = [standing.basis] if standing.basis and tree is standing.snapshot.project else []
    ours: list[str] = []
    while True:
        ours.insert(0, f".{tree.id}.{secrets.token_hex(4)}.part")
        try:
            return _send(site, tree, ours, [*begun, *basis], progress)
        except LostError:
            if len(ours) == _TRIES:
                raise
        except TransportError:
            if not begun:
                raise
            begun = []  # one of those uploads may still have been running, and renamed its folder under us


def _send(
    site: Site,
    tree: Tree,
    ours: Sequence[str],
    others: Sequence[str],
    progress: ProgressCallback | None,
) -> Transferred:
    """Send one tree to a partial folder, then rename it.

    Args:
        site: the cluster.
        tree: the files to send.
        ours: the partial folder, followed by those of earlier tries, which are removed at the end.
        others: other folders that may have some of the files.
        progress: called with each progress report.
    """
    snapshots = site.layout.snapshots
    final, part = f"{snapshots}/{tree.id}", f"{snapshots}/{ours[0]}"
    options = SyncOptions(
        files_from=tree.files,
        link_dest=tuple(f"{snapshots}/{folder}/{tree.name}" for folder in (*ours[1:], *others)),
        inplace=True,  # an unfinished file keeps its final name on the server, however the transfer ended
        checksum=True,  # rsync's quick check misses an edit of the same size within one second
        mode=site.sharing.tree,
    )
    sent = Transferred(0, 0)
    if tree.files:
        sent = site.transport.push(tree.root, f"{part}/{tree.name}", options=options, progress=progress)
    changed = tree.changed()
    earlier = [f"{snapshots}/{folder}" for folder in ours[1:]]
    script = _DROP if changed else _PUBLISH
    sharing = [site.sharing.group or "", site.sharing.folder]
    result = site.transport.run(
        ["sh", "-c", script, "sh", final, part, tree.name, *sharing, *earlier],
        stdin=pack_manifest(tree.manifest),
        check=False,
    )
    if changed:
        raise ClusterkitError(
            f"{changed}: was changed while the code was being sent", hint="run the same command again"
        )
    if result.returncode != 0:
        raise faults.unwritable(final, result.error_text, where=site.transport.where)
    return sent


def transplant(site: Site, identity: str, folder: Path) -> None:
    """Upload a complete snapshot that was pulled from another cluster.

    Args:
        site: the cluster that lacks it.
        identity: the snapshot's id.
        folder: contains its tree, `project` or `bundle`, and `manifest.gz`.

    Raises:
        TransportError: the cluster cannot be written to, or the connection failed.
    """
    name = "bundle" if (folder / "bundle").is_dir() else "project"
    final = f"{site.layout.snapshots}/{identity}"
    part = f"{site.layout.snapshots}/.{identity}.{secrets.token_hex(4)}.part"
    if (folder / name).is_dir():  # an empty project has no tree
        site.transport.push(folder / name, f"{part}/{name}", options=SyncOptions(mode=site.sharing.tree))
    arguments = [final, part, name, site.sharing.group or "", site.sharing.folder]
    packed = (folder / "manifest.gz").read_bytes()
    done = site.transport.run(["sh", "-c", _PUBLISH, "sh", *arguments], stdin=packed, check=False)
    if done.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot write {final}: {done.reason}")


# A snapshot folder's mtime is when it was last wanted; `storage prune` keeps recent ones.
# $1 the snapshots folder, $2 the preferred basis, $3 whether they are about to be used, the rest the ids of
# the trees, the project's first. Prints those that are absent; the basis; the bytes in their partial folders,
# and at most 8 of these folders; the basis's packed manifest. A bundle is never a basis. An interrupted
# upload is useless once its snapshot exists, or after a day.
_LOOK = r"""
snapshots=$1 wanted=$2 use=$3
shift 3
idle() { test -z "$(find "$1" -mmin -1 2>/dev/null | head -n 1)"; }
old() { test -n "$(find "$1" -prune -mmin +1440 2>/dev/null)"; }
if test -n "$use"; then
    for part in "$snapshots"/.*.part; do
        test -d "$part" || continue
        id=${part##*/.}
        if old "$part" || { test -d "$snapshots/${id%%.*}" && idle "$part"; }; then
            find "$part" -type d -exec chmod u+rwx {} + 2>/dev/null
            rm -rf "$part" 2>/dev/null
        fi
    done
    for id; do touch -c "$snapshots/$id" 2>/dev/null; done
fi
absent= parts= basis=
for id; do
    test -d "$snapshots/$id" || absent="$absent $id" parts="$parts .$id.*.part"
done
if test ! -d "$snapshots/$1"; then
    basis=$wanted
    test -n "$basis" && test -d "$snapshots/$basis" || basis=$(
        ls -t "$snapshots" 2>/dev/null | while read -r name; do
            if test -d "$snapshots/$name/project"; then echo "$name"; break; fi
        done
    )
fi
echo $absent
echo "$basis"
begun=
test -z "$absent" || begun=$(cd "$snapshots" 2>/dev/null && ls -dt $parts 2>/dev/null | head -n 8)
arrived=0
test -z "$begun" || arrived=$(
    cd "$snapshots" && {
        test -z "$basis" || find "$basis" -type f -exec ls -lnid {} +
        echo
        find $begun -type f -exec ls -lnid {} +
    } | awk '!NF { ours = 1 } ours && $2 ~ /^-/ && !seen[$1] { sum += $6 } { seen[$1] = 1 }
        END { printf "%.0f", sum }'
)
echo "$arrived" $begun
test -z "$basis" || cat "$snapshots/$basis/manifest.gz" 2>/dev/null || true
"""

# $1 the final folder, $2 its partial folder, $3 the tree in it, $4 the group that may read it, $5 the mode of
# its folders in that case, the rest partial folders of earlier tries. Standard input is the manifest. Nobody
# can write into what is published. When two uploads of one snapshot finish together, mv moves the second
# folder into the first, or fails to.
_PUBLISH = """
umask 077; export LC_ALL=C
mkdir -p "$2/$3" && cat > "$2/manifest.gz" && chmod 400 "$2/manifest.gz" || exit 1
if test -n "$4"; then
    chgrp -R "$4" "$2" && chmod "$5" "$2" "$2/$3" && chmod 440 "$2/manifest.gz" || exit 1
fi
if test ! -d "$1"; then
    find "$2" -type d -exec chmod a-w {} + && mv "$2" "$1"
    test -d "$1" || exit 1
fi
for left in "$2" "$1/${2##*/}"; do
    test -e "$left" || continue
    chmod u+w "$1" && chmod -R u+rwx "$left" && rm -rf "$left" && chmod a-w "$1" || exit 1
done
shift 5; rm -rf "$@" 2>/dev/null
exit 0
"""
_DROP = 'cat > /dev/null; part=$2; shift 5; rm -rf "$part" "$@"'
