"""The snapshots on a cluster: what is there, and bringing a new one, sharing what did not change.

Every upload has a partial folder of its own and shares the files of those that broke off before it, as it
shares those of another snapshot: so no upload ever writes where another one may be writing, and what is not
of this snapshot never gets into it.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from clusterkit.errors import ClusterkitError, TransportError
from clusterkit.site import Inquiry, Site
from clusterkit.snapshots import manifest
from clusterkit.snapshots.manifest import ManifestEntry
from clusterkit.snapshots.snapshot import Snapshot, Tree
from clusterkit.transport import faults
from clusterkit.transport.base import ProgressCallback, SyncOptions, Transferred
from clusterkit.transport.faults import LostError

_TRIES = 9
"""A connection that dies more often within one upload needs a person."""


@dataclass(frozen=True)
class Standing:
    """How a snapshot stands to what a cluster has."""

    snapshot: Snapshot
    project_there: bool
    bundle_there: bool
    basis: str | None = None
    """Id of the snapshot there to share unchanged files with."""
    basis_manifest: bytes = b""
    begun: tuple[str, ...] = ()
    """Partial folders that earlier uploads of the same left there, newest first."""
    arrived: int = 0
    """About the bytes in them."""

    @property
    def present(self) -> bool:
        """Whether nothing is missing."""
        return self.project_there and self.bundle_there

    @cached_property
    def missing(self) -> dict[str, ManifestEntry]:
        """The files that would be sent, by name in the manifests."""
        found: dict[str, ManifestEntry] = {}
        if not self.project_there:
            wanted = manifest.parse(self.snapshot.project.manifest)
            found = manifest.missing(wanted, manifest.parse(self.basis_manifest))
        if not self.bundle_there:
            found |= manifest.parse(self.snapshot.bundle.manifest)
        return found

    @property
    def bytes_to_send(self) -> int:
        """Size of the files that would be sent, less what has arrived of them."""
        return max(0, sum(entry.bytes for entry in self.missing.values()) - self.arrived)


def inquiry(snapshot: Snapshot, *, basis: str | None = None, use: bool = False) -> Inquiry:
    """What `look` asks a cluster, with the same arguments."""
    return Inquiry("snapshots", _LOOK, (snapshot.id, snapshot.bundle.id, basis or "", "use" if use else ""))


def look(site: Site, snapshot: Snapshot, *, basis: str | None = None, use: bool = False) -> Standing:
    """Ask a cluster, in one command at most, what of a snapshot it has.

    Args:
        site: the cluster.
        snapshot: what is wanted there.
        basis: id of the snapshot to compare with, if it is there; else the newest one.
        use: the snapshot is about to be used: `gc` leaves it alone for a while, and what is of no use of
            uploads that broke off is removed. Without it nothing changes there.

    Raises:
        TransportError: the cluster gave no answer.
    """
    result = site.ask(inquiry(snapshot, basis=basis, use=use))
    if result.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot read {site.layout.snapshots}: {result.reason}")
    first, second, rest = result.stdout.split(b"\n", 2)
    project, bundle, *newest = first.decode().split()
    arrived, *begun = second.decode().split()
    return Standing(
        snapshot,
        project == "yes",
        bundle == "yes",
        newest[0] if newest else None,
        manifest.unpack(rest),
        tuple(begun),
        int(arrived),
    )


def publish(site: Site, standing: Standing, *, progress: ProgressCallback | None = None) -> Transferred:
    """Bring a snapshot to the cluster; what is there is left alone.

    Unchanged files are hard-linked against the basis, so that many submits cost one copy. A folder
    appears under its name only when it is whole. Interrupted at any point, the next one sends the rest.

    Raises:
        ClusterkitError: a file changed while it was sent; the name stays free.
        TransportError: the cluster cannot be written to, or the connection failed.
    """
    snapshot, sent = standing.snapshot, []
    if not standing.bundle_there:
        sent.append(_bring(site, snapshot.bundle, "bundle", standing, progress))
    if not standing.project_there:
        sent.append(_bring(site, snapshot.project, "project", standing, progress))
    return Transferred(sum(one.files for one in sent), sum(one.bytes for one in sent), snapshot.bytes)


def _bring(
    site: Site, tree: Tree, name: str, standing: Standing, progress: ProgressCallback | None
) -> Transferred:
    """Send one tree, over a new connection where one dies on the way."""
    begun = [part for part in standing.begun if part.startswith(f".{tree.id}.")]
    basis = [standing.basis] if standing.basis and name == "project" else []
    ours: list[str] = []
    while True:
        ours.insert(0, f".{tree.id}.{secrets.token_hex(4)}.part")
        try:
            return _send(site, tree, name, ours, [*begun, *basis], progress)
        except LostError:
            if len(ours) == _TRIES:
                raise


def _send(
    site: Site,
    tree: Tree,
    name: str,
    ours: Sequence[str],
    others: Sequence[str],
    progress: ProgressCallback | None,
) -> Transferred:
    """Send one tree to a partial folder and give it its name.

    Args:
        site: the cluster.
        tree: what goes.
        name: of the folder that it becomes.
        ours: the partial folder, and before it those of earlier tries, which go in the end.
        others: folders beside them that may have some of the files.
        progress: called with each report.
    """
    snapshots = site.layout.snapshots
    final, part = f"{snapshots}/{tree.id}", f"{snapshots}/{ours[0]}"
    options = SyncOptions(
        files_from=tree.files,
        link_dest=tuple(f"{snapshots}/{folder}/{name}" for folder in (*ours[1:], *others)),
        inplace=True,  # what the server leaves of an unfinished file has the file's name, however it ended
        checksum=True,  # to rsync's quick check an edit of the same size within one second looks unchanged
        mode=site.sharing.tree,
    )
    sent = Transferred(0, 0, 0)
    if tree.files:
        sent = site.transport.push(tree.root, f"{part}/{name}", options=options, progress=progress)
    changed = tree.changed()
    earlier = [f"{snapshots}/{folder}" for folder in ours[1:]]
    script = _DROP if changed else _PUBLISH
    sharing = [site.sharing.group or "", site.sharing.folder]
    result = site.transport.run(
        ["sh", "-c", script, "sh", final, part, name, *sharing, *earlier],
        stdin=manifest.pack(tree.manifest),
        check=False,
    )
    if changed:
        raise ClusterkitError(
            f"{changed}: was changed while the code was sent", hint="run the same command again"
        )
    if result.returncode != 0:
        raise faults.unwritable(final, result.error_text, where=site.transport.where)
    return sent


def transplant(site: Site, identity: str, folder: Path) -> None:
    """Bring a snapshot that was pulled, whole, from another cluster.

    Args:
        site: the cluster that lacks it.
        identity: its id.
        folder: holds its tree, `project` or `bundle`, and `manifest.gz`.

    Raises:
        TransportError: the cluster cannot be written to, or the connection failed.
    """
    name = "bundle" if (folder / "bundle").is_dir() else "project"
    final = f"{site.layout.snapshots}/{identity}"
    part = f"{site.layout.snapshots}/.{identity}.{secrets.token_hex(4)}.part"
    if (folder / name).is_dir():  # an empty project has none
        site.transport.push(folder / name, f"{part}/{name}", options=SyncOptions(mode=site.sharing.tree))
    arguments = [final, part, name, site.sharing.group or "", site.sharing.folder]
    packed = (folder / "manifest.gz").read_bytes()
    done = site.transport.run(["sh", "-c", _PUBLISH, "sh", *arguments], stdin=packed, check=False)
    if done.returncode != 0:
        raise TransportError(f"{site.transport.where}: cannot write {final}: {done.reason}")


# A snapshot's time is when it was last wanted: gc leaves what is young alone.
# $1 all snapshots, $2 the project's id, $3 the bundle's, $4 the basis that is liked best, $5 whether they are
# used. Prints yes or no for both and the basis; how many bytes partial folders of either hold, and at most 8
# of them; the basis's packed manifest. A bundle is no basis. What broke off is of no use once its snapshot
# is there, or after a day.
_LOOK = r"""
idle() { test -z "$(find "$1" -mmin -1 2>/dev/null | head -n 1)"; }
old() { test -n "$(find "$1" -prune -mmin +1440 2>/dev/null)"; }
if test -n "$5"; then
    for part in "$1"/.*.part; do
        test -d "$part" || continue
        id=${part##*/.}
        if old "$part" || { test -d "$1/${id%%.*}" && idle "$part"; }; then
            find "$part" -type d -exec chmod u+rwx {} + 2>/dev/null
            rm -rf "$part" 2>/dev/null
        fi
    done
    touch -c "$1/$2" "$1/$3" 2>/dev/null
fi
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
begun=
test "$project $bundle" = 'yes yes' ||
    begun=$(cd "$1" 2>/dev/null && ls -dt ".$2".*.part ".$3".*.part 2>/dev/null | head -n 8)
arrived=0
test -z "$begun" || arrived=$(
    cd "$1" && {
        test -z "$basis" || find "$basis" -type f -exec ls -lnid {} +
        echo
        find $begun -type f -exec ls -lnid {} +
    } | awk '!NF { ours = 1 } ours && $2 ~ /^-/ && !seen[$1] { sum += $6 } { seen[$1] = 1 }
        END { printf "%.0f", sum }'
)
echo "$arrived" $begun
test -z "$basis" || cat "$1/$basis/manifest.gz" 2>/dev/null || true
"""

# $1 the final folder, $2 its partial folder, $3 the tree in it, $4 the group that may read it, $5 the mode of
# its folders then, the rest what earlier tries left. The manifest comes on standard input. Two uploads of one
# snapshot may finish together: mv then moves the second folder into the first.
_PUBLISH = """
umask 077; export LC_ALL=C
mkdir -p "$2/$3" && cat > "$2/manifest.gz" && chmod 400 "$2/manifest.gz" || exit 1
if test -n "$4"; then
    chgrp -R "$4" "$2" && chmod "$5" "$2" "$2/$3" && chmod 440 "$2/manifest.gz" || exit 1
fi
if test -d "$1"; then rm -rf "$2"; else mv "$2" "$1" && rm -rf "$1/${2##*/}"; fi || exit 1
shift 5; rm -rf "$@" 2>/dev/null
exit 0
"""
_DROP = 'cat > /dev/null; part=$2; shift 5; rm -rf "$part" "$@"'
