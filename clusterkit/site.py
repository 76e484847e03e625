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

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_VARIABLE = re.compile(r"\$(?:USER|HOME)\b|\$\{(?:USER|HOME)\}")


@dataclass(frozen=True)
class Layout:
    """Absolute POSIX paths of the folders below a work root."""

    root: str
    scratch: str

    @property
    def images(self) -> str:
        """Content-addressed images."""
        return f"{self.root}/images"

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
class Site:
    """A cluster with its connection and layout."""

    cluster: Cluster
    transport: Transport
    layout: Layout
    free_bytes: int | None
    """Free space of the work root, where df tells."""


@contextmanager
def connected(cluster: Cluster) -> Iterator[Transport]:
    """One login to a cluster, closed at the end; or none, where an earlier one is kept.

    Raises:
        TransportError: the host cannot be reached or refuses the login.
    """
    from clusterkit.transport.factory import connect

    transport = connect(
        cluster.host,
        ssh_config=cluster.ssh_config,
        login_shell=cluster.login_shell,
        keep=cluster.keep_login,
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
        script = _resolve_script(cluster.root, cluster.scratch) + (_CREATE if create else "") + _PRINT
        result = transport.run(["sh", "-c", script], check=False)
        lines = result.text.split("\n")
        if result.returncode != 0 or len(lines) < 3:
            raise TransportError(
                f"{transport.where}: the work root {cluster.root} cannot be used: {result.reason}",
                hint=f"set `root` of [clusters.{cluster.name}] to a folder you can write to there",
            )
        root, scratch, free = lines[:3]
        yield Site(cluster, transport, Layout(root, scratch), int(free) * 1024 if free.isdigit() else None)


def scheduler_of(cluster: Cluster) -> Scheduler:
    """The scheduler that runs a cluster's jobs."""
    if cluster.kind == "local":
        from clusterkit.local.scheduler import LocalScheduler

        return LocalScheduler()
    from clusterkit.slurm.commands import SlurmScheduler

    return SlurmScheduler()


_CREATE = (
    'umask 077; mkdir -p "$root/images" "$root/snapshots" "$root/runs" "$root/cache" "$scratch" || exit 1; '
)
_PRINT = (
    'printf "%s\\n%s\\n" "$root" "$scratch"; '
    "df -Pk \"$root\" 2>/dev/null | awk 'NR == 2 { free = $4 } END { print free }'"
)


def _resolve_script(root: str, scratch: str | None) -> str:
    """Sets $root and $scratch, without a slash at the end."""
    scratch_word = shell_path(scratch) if scratch else '"$root/scratch"'
    return f"root={shell_path(root)}; root=${{root%/}}; scratch={scratch_word}; scratch=${{scratch%/}}; "


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
