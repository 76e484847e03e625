"""An open cluster: the connection to it and the absolute paths of its work root."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import clusterkit.ownership as ownership
from clusterkit.errors import TransportError
from clusterkit.probes import shell_path
from clusterkit.transport.base import Completed, Transport
from clusterkit.transport.faults import room_hint
from clusterkit.untrusted import ordinal

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster
    from clusterkit.transport.ahead import LoginAhead
    from clusterkit.transport.questions import Ask


@dataclass(frozen=True)
class Layout:
    """Absolute POSIX paths of a work root's folders."""

    root: str
    scratch: str
    image_store: str | None = None

    @property
    def images(self) -> str:
        """Content-addressed images."""
        return self.image_store or f"{self.root}/images"

    @property
    def snapshots(self) -> str:
        """Content-addressed snapshots."""
        return f"{self.root}/snapshots"

    @property
    def environments(self) -> str:
        """Content-addressed Python environments."""
        return f"{self.root}/environments"

    @property
    def runs(self) -> str:
        """Run directories."""
        return f"{self.root}/runs"

    @property
    def cache(self) -> str:
        """Caches of the container runtime."""
        return f"{self.root}/cache"

    def run(self, run_id: str) -> str:
        """The run directory of one run."""
        return f"{self.runs}/{run_id}"


@dataclass(frozen=True)
class Sharing:
    """Who may read images and snapshots: only the user, or one Unix group. Run directories stay private."""

    group: str | None = None

    @property
    def folder(self) -> str:
        """Mode of their folders; the setgid bit passes the group on."""
        return "2750" if self.group else "700"

    @property
    def file(self) -> str:
        """Mode of a file that never changes again."""
        return "440" if self.group else "400"

    @property
    def tree(self) -> str:
        """The same for a whole tree, as rsync's --chmod; executable files stay executable."""
        return "Dg=rx,Do=,Fg=rX,Fo=,Fugo-w" if self.group else "Dgo=,Fgo=,Fu-w"


@dataclass(frozen=True)
class Inquiry:
    """A question about one store of a cluster: a POSIX sh script that reads no standard input."""

    store: Literal["images", "snapshots"]
    """The store's folder is the script's $1."""
    script: str
    arguments: tuple[str, ...] = ()
    """$2 and so on."""


@dataclass(frozen=True)
class Site:
    """A cluster with its connection and layout."""

    cluster: Cluster
    transport: Transport
    layout: Layout
    free_bytes: int | None
    """Free space for the images folder, if df reports it."""
    foreseen: dict[Inquiry, Completed] = field(default_factory=dict)
    """Answers that came with the paths; each may be used once."""
    notes: tuple[str, ...] = ()
    """Trusted other users who could change the folders."""

    def ask(self, inquiry: Inquiry) -> Completed:
        """The answer to an inquiry, whatever its exit status.

        Raises:
            TransportError: the cluster gave no answer.
        """
        if inquiry in self.foreseen:
            return self.foreseen.pop(inquiry)
        folder = self.layout.images if inquiry.store == "images" else self.layout.snapshots
        return self.transport.run(["sh", "-c", inquiry.script, "sh", folder, *inquiry.arguments], check=False)

    @property
    def sharing(self) -> Sharing:
        """Who may read what is deployed."""
        return Sharing(self.cluster.group)


@contextmanager
def connected(
    cluster: Cluster, *, ask: Ask | None = None, login: tuple[str, LoginAhead] | None = None
) -> Iterator[Transport]:
    """A connection to a cluster, closed at the end; it reuses a kept login.

    Args:
        cluster: where.
        ask: answers the login's questions; None asks at the terminal.
        login: a cluster's name and a login to it that was started already.

    Raises:
        TransportError: the host cannot be reached or refuses the login.
    """
    ahead = login[1] if login is not None and login[0] == cluster.name else None
    transport = ahead.transport() if ahead is not None else _log_in(cluster, ask)
    try:
        yield transport
    finally:
        transport.close()


def log_in_ahead(cluster: Cluster) -> LoginAhead:
    """A context manager that starts the login for a later `open_site`; questions wait until then."""
    from clusterkit.transport.ahead import LoginAhead
    from clusterkit.transport.questions import ask_on_terminal

    return LoginAhead(lambda ask: _log_in(cluster, ask), ask_on_terminal)


@contextmanager
def open_site(
    cluster: Cluster,
    *,
    create: bool = True,
    login: LoginAhead | None = None,
    inquiries: Sequence[Inquiry] = (),
) -> Iterator[Site]:
    """Log in once and resolve the work root's absolute path.

    Args:
        cluster: where.
        create: create the work root's folders (0700) if they are absent; otherwise nothing is changed.
        login: a login that was started already; its starter ends it.
        inquiries: inquiries to answer in the same command.

    Raises:
        TransportError: the host cannot be reached or the work root cannot be used.
        OwnershipError: others could change the folders; nothing was written.
    """
    if login is not None:
        yield _site(cluster, login.transport(), create, inquiries)
    else:
        with connected(cluster) as transport:
            yield _site(cluster, transport, create, inquiries)


def make_site(cluster: Cluster, transport: Transport) -> Site:
    """The site behind an open connection; makes what is missing of its work root.

    Raises:
        TransportError: the work root cannot be used.
        OwnershipError: others could change the folders; nothing was written.
    """
    return _site(cluster, transport, create=True, inquiries=())


def _log_in(cluster: Cluster, ask: Ask | None) -> Transport:
    if cluster.host is None:
        from clusterkit.transport.local import LocalTransport

        return LocalTransport()
    from clusterkit.transport.factory import connect

    return connect(
        cluster.host,
        ask=ask,
        ssh_config=lambda: cluster.login_config,
        login_shell=cluster.login_shell,
        keep=cluster.keep_login,
        wanted=cluster.transport,
    )


def _site(cluster: Cluster, transport: Transport, create: bool, inquiries: Sequence[Inquiry]) -> Site:
    sharing, mark = Sharing(cluster.group), secrets.token_hex(16)
    ending = f"printf '\\n%s %s\\n' {mark} $?\n"
    script = resolve_script(cluster) + check_script(cluster) + (_CREATE if create else "") + _PRINT + ending
    script += "".join(f"({_words(inquiry)}\n{inquiry.script}\n)\n{ending}" for inquiry in inquiries)
    argv = ["sh", "-c", script, "sh", sharing.group or "", sharing.folder, mark[:8]]
    result = transport.run(argv, check=False)
    said, *parts = result.stdout.split(f"\n{mark} ".encode())
    lines = said.decode("utf-8", "replace").split("\n")
    if result.returncode == ownership.EXIT_CODE and (faults := ownership.parse("\n".join(lines))):
        raise ownership.refusal(transport.where, faults, lines[-1], f"[clusters.{cluster.name}]")
    if result.returncode != 0 or len(lines) < 4 or len(parts) != len(inquiries) + 1:
        raise TransportError(
            f"{transport.where}: the work root {cluster.root} cannot be used: {result.reason}",
            hint=room_hint(result.error_text)
            or _group_hint(sharing.group, result.error_text)
            or f"set `root` of [clusters.{cluster.name}] to a folder there that you can write to",
        )
    root, scratch, store, free = lines[:4]
    statuses, outputs = zip(*(part.split(b"\n", 1) for part in parts), strict=True)
    answers = (
        Completed((inquiry.script,), int(status), output, result.stderr)
        for inquiry, status, output in zip(inquiries, statuses[1:], outputs[:-1], strict=True)
    )
    return Site(
        cluster,
        transport,
        Layout(root, scratch, store),
        kilobytes * 1024 if (kilobytes := ordinal(free)) is not None else None,
        dict(zip(inquiries, answers, strict=True)),
        tuple(note.text for note in ownership.parse("\n".join(lines[4:]))),
    )


def _group_hint(group: str | None, said: str) -> str | None:
    if group is None or "chgrp: " not in said:
        return None
    return f"`id -Gn` there shows your groups; leave out `group`, or ask to be let into {group}"


def _words(inquiry: Inquiry) -> str:
    """Gives a script its arguments, in which paths are still variables."""
    folder = '"$store"' if inquiry.store == "images" else '"$root/snapshots"'
    return f"set -- {folder} {shlex.join(inquiry.arguments)}"


# $1 is the group that may read images and snapshots, or nothing; $2 the mode of their folders then. The group
# may pass what is made above them. $3 is a name for a new work root. The links let `storage prune` find every
# work root that uses a store; they lead to a name of the root's own, for another disk may have the same path.
_CREATE = r"""
umask 077
make() { # private whatever default access control list the folder above hands down
    test ! -d "$1" || return 0
    test -z "${1%/*}" || make "${1%/*}" "$2" || return
    mkdir -p -m 700 "$1" || return
    test -z "$2" || { chgrp "$2" "$1" && chmod 710 "$1"; }
}
make "$store" "$1" && make "$root/snapshots" "$1" || exit 1
for folder in "$root/runs" "$root/cache" "$scratch"; do
    make "$folder" '' || exit 1
done
own_must=yes groups=
test ! -e "$root/groups" || groups=$root/groups
own_roots "$root" "$root/runs" ${groups:+"$groups"} "$root/snapshots" "$root/cache" "$store" "$scratch/"
for folder in "$root" "$store" "$root/snapshots"; do
    test -z "$1" || test ! -O "$folder" || { chgrp "$1" "$folder" && chmod "$2" "$folder"; } || exit 1
done
here=$(cd "$root" && pwd -P) || exit 1
test "$store" != "$root/images" || test -L "$store" || here=.. # also right after the root was renamed
for mark in "$root"/.root-*; do test ! -d "$mark" || break; done
test -d "$mark" || { mark=$root/.root-$3 && make "$mark" ''; } || exit 1
mark=${mark##*/}
link=$(printf %s "$here" | cksum) || exit 1
link=$store/$mark-${link%% *}
nothing_of_mine() { test -z "$(find "$store" -user "$(id -u)" 2>/dev/null | head -n 1)"; }
test -L "$link" || ln -sn "$here/$mark" "$link" 2>/dev/null || test -L "$link" || nothing_of_mine || {
    echo "$store is read-only here, and \`storage prune\` elsewhere would not know of this root;" \
        "where it can be written to, type: ln -s '$here/$mark' '$link'" >&2
    exit 1
}
"""
# df of the nearest folder that exists: a dry run of `deploy` looks before anything was made.
_PRINT = r"""
printf '%s\n%s\n%s\n' "$root" "$scratch" "$store"
near=$store
while test ! -e "$near" && test -n "$near"; do near=${near%/*}; done
df -Pk "${near:-/}" 2>/dev/null | awk 'NR == 2 { free = $4 } END { print free }'
printf '%s' "$own_notes"
"""
# Before anything is made there, and again afterwards: somebody may have been quicker, and hidden it before.
_OWNED = f"""
own_roots() {{
    own_check "$@" && return
    printf '%s%s' "$own_faults" "$(id -un)"
    exit {ownership.EXIT_CODE}
}}
own_roots "$root" "$root/runs" "$root/groups" "$root/snapshots" "$root/environments" "$root/cache" "$store" \
    "$scratch/"
"""


def resolve_script(cluster: Cluster) -> str:
    """Sets $root, $scratch and $store, without a trailing slash."""
    paths = {
        "root": shell_path(cluster.root),
        "scratch": shell_path(cluster.scratch_root),
        "store": shell_path(cluster.image_root),
    }
    return "".join(f"{name}={word}; {name}=${{{name}%/}}; " for name, word in paths.items())


def check_script(cluster: Cluster) -> str:
    """Exits with `ownership.EXIT_CODE` if others could change $root, $store or $scratch; sets $own_notes."""
    return f"\n{ownership.fragment(cluster.trust, cluster.group)}{_OWNED}"
