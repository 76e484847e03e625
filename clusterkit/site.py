"""An open cluster: the one connection to it, the absolute paths of its work root, its scheduler."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.errors import TransportError
from clusterkit.scheduler import Scheduler
from clusterkit.transport.base import Transport
from clusterkit.transport.questions import Ask, ask_on_terminal

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_VARIABLE = re.compile(r"\$(?:USER|HOME)\b|\$\{(?:USER|HOME)\}")


@dataclass(frozen=True)
class Layout:
    """Absolute POSIX paths of the folders below a work root."""

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
    """Who may read images and snapshots: the user alone, or one Unix group. Run directories stay private."""

    group: str | None = None

    @property
    def folder(self) -> str:
        """Mode of their folders; the setgid bit hands the group down."""
        return "2750" if self.group else "700"

    @property
    def file(self) -> str:
        """Mode of a file that never changes again."""
        return "440" if self.group else "400"

    @property
    def tree(self) -> str:
        """The same for a whole tree, as rsync's --chmod: what is executable stays so."""
        return "Dg=rx,Do=,Fg=rX,Fo=,Fugo-w" if self.group else "Dgo=,Fgo=,Fu-w"


@dataclass(frozen=True)
class Site:
    """A cluster with its connection and layout."""

    cluster: Cluster
    transport: Transport
    layout: Layout
    free_bytes: int | None
    """Free space below the images folder, where df tells."""

    @property
    def sharing(self) -> Sharing:
        """Who may read what is deployed."""
        return Sharing(self.cluster.group)


@contextmanager
def connected(cluster: Cluster, *, ask: Ask = ask_on_terminal) -> Iterator[Transport]:
    """One login to a cluster, closed at the end; or none, where an earlier one is kept.

    Args:
        cluster: where.
        ask: answers the login's questions.

    Raises:
        TransportError: the host cannot be reached or refuses the login.
    """
    from clusterkit.transport.factory import connect

    transport = connect(
        cluster.host,
        ssh_config=cluster.ssh_config,
        login_shell=cluster.login_shell,
        keep=cluster.keep_login,
        ask=ask,
    )
    try:
        yield transport
    finally:
        transport.close()


@contextmanager
def open_site(cluster: Cluster, *, create: bool = True) -> Iterator[Site]:
    """Log in once and resolve the work root's absolute path.

    Args:
        cluster: where.
        create: make the work root's folders (0700) if they are absent; without it nothing changes there.

    Raises:
        TransportError: the host cannot be reached or the work root cannot be used.
    """
    with connected(cluster) as transport:
        sharing = Sharing(cluster.group)
        script = _resolve_script(cluster) + (_CREATE if create else "") + _PRINT
        result = transport.run(["sh", "-c", script, "sh", sharing.group or "", sharing.folder], check=False)
        lines = result.text.split("\n")
        if result.returncode != 0 or len(lines) < 4:
            raise TransportError(
                f"{transport.where}: the work root {cluster.root} cannot be used: {result.reason}",
                hint=f"set `root` of [clusters.{cluster.name}] to a folder you can write to there",
            )
        root, scratch, store, free = lines[:4]
        layout = Layout(root, scratch, store)
        yield Site(cluster, transport, layout, int(free) * 1024 if free.isdigit() else None)


def scheduler_of(cluster: Cluster) -> Scheduler:
    """The scheduler that runs a cluster's jobs."""
    if cluster.kind == "local":
        from clusterkit.local.scheduler import LocalScheduler

        return LocalScheduler()
    from clusterkit.slurm.commands import SlurmScheduler

    return SlurmScheduler()


# $1 is the group that may read images and snapshots, or nothing; $2 the mode of their folders then.
_CREATE = """
umask 077; mkdir -p "$store" "$root/snapshots" "$root/runs" "$root/cache" "$scratch" || exit 1
for folder in "$root" "$store" "$root/snapshots"; do
    test -z "$1" || test ! -O "$folder" || { chgrp "$1" "$folder" && chmod "$2" "$folder"; } || exit 1
done
"""
# df of the nearest folder that exists: --plan looks before anything was made.
_PRINT = r"""
printf '%s\n%s\n%s\n' "$root" "$scratch" "$store"
while test ! -e "$store" && test -n "$store"; do store=${store%/*}; done
df -Pk "${store:-/}" 2>/dev/null | awk 'NR == 2 { free = $4 } END { print free }'
"""


def _resolve_script(cluster: Cluster) -> str:
    """Sets $root, $scratch and $store, without a slash at the end."""
    paths = {
        "root": shell_path(cluster.root),
        "scratch": shell_path(cluster.scratch_root),
        "store": shell_path(cluster.image_root),
    }
    return "".join(f"{name}={word}; {name}=${{{name}%/}}; " for name, word in paths.items())


def shell_path(path: str) -> str:
    r"""A path from the configuration as one shell word: `~/`, $USER and $HOME are left to the shell.

    >>> shell_path("/share/$USER/my runs")
    '/share/"$USER"\'/my runs\''
    """
    words = []
    if path == "~" or path.startswith("~/"):
        words.append('"$HOME"')
        path = path[1:]
    position = 0
    for match in _VARIABLE.finditer(path):
        if match.start() > position:
            words.append(shlex.quote(path[position : match.start()]))
        words.append(f'"{match.group()}"')
        position = match.end()
    if position < len(path):
        rest = path[position:]
        words.append(shlex.quote(rest))
    return "".join(words)
