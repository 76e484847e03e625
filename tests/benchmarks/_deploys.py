"""What many snapshots cost on a cluster's disk, and what a deploy costs when there is nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from clusterkit.commands.deploy import deploy
from clusterkit.config.models import Cluster
from clusterkit.config.settings import load_settings
from clusterkit.runs.ledger import Ledger
from clusterkit.site import log_in_ahead, open_site
from clusterkit.snapshots import look, publish, take
from clusterkit.transport.base import ProgressCallback
from tests.allowing import allow
from tests.doubles.loopback_sshd import LoopbackSshd

SIF_HEADER = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0"


def project_tree(folder: Path) -> Path:
    """A project of 20 MB: 100 modules of 10 kB in five packages, and 19 meshes of 1 MB."""
    sizes = {f"package{number % 5}/module{number}.py": 10_000 for number in range(100)}
    sizes |= {f"meshes/{number}.stl": 1_000_000 for number in range(19)}
    for name, size in sizes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.urandom(size))
    return folder


def disk_factor(folder: Path, submits: int = 50) -> float:
    """Disk space of many snapshots, each with one changed module, over that of the first; by du."""
    project = project_tree(folder / "project")
    used = []
    with closing(LoopbackSshd(folder / "sshd")) as server:
        cluster = Cluster(
            name="far",
            host=server.alias,
            ssh_config=server.ssh_config,
            root=f"{folder}/root",
            container="none",
        )
        with open_site(cluster) as site:
            previous = None
            for number in range(submits):
                path = project / f"package{number % 5}" / f"module{number}.py"
                path.write_bytes(os.urandom(path.stat().st_size))
                snapshot = take(project, exclude=(), max_file_size=1 << 30)
                publish(site, look(site, snapshot, basis=previous))
                previous = snapshot.id
                used.append(_used(Path(site.layout.snapshots)))
    return used[-1] / used[0]


def noop_deploys(folder: Path, repetitions: int) -> dict[str, list[float]]:
    """Seconds of deploys that find everything there, login included, and of rsync -e ssh doing the same."""
    project = project_tree(folder / "project")
    (project / "image.sif").write_bytes(
        b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + os.urandom(1_000_000)
    )
    times: dict[str, list[float]] = {"deploy_noop": [], "rsync_deploy_noop": [], "deploy_noop_command": []}
    with closing(LoopbackSshd(folder / "sshd")) as server:
        (project / "clusterkit.toml").write_text(
            '[project]\ndefault_cluster = "far"\n[clusters.far]\nhost = "node"\nimage = "image.sif"\n'
            f'ssh_config = "{server.ssh_config}"\nroot = "{folder}/root"\n'
        )
        allow(project)
        settings = load_settings(config=project / "clusterkit.toml")
        rsync = ["rsync", "-rlpt", "-e", f"ssh -F {server.ssh_config}", f"{project}/", f"node:{folder}/peer/"]
        command = [sys.executable, "-m", "clusterkit", "deploy"]
        environ = with_bytecode(folder / "bytecode")
        with Ledger(project / ".clusterkit" / "ledger.sqlite3") as ledger:

            def ours() -> None:
                with log_in_ahead(settings.cluster()) as login:
                    deploy(settings, settings.cluster(), ledger, login=login, image=None, bar=_no_bar)

            def peer() -> None:
                subprocess.run(rsync, check=True)

            def whole_command() -> None:
                subprocess.run(command, check=True, cwd=project, capture_output=True, env=environ)

            for work in (ours, peer, whole_command):
                work()
            for _ in range(repetitions):
                for what, work in zip(times, (ours, peer, whole_command), strict=True):
                    start = time.perf_counter()
                    work()
                    times[what].append(time.perf_counter() - start)
    return times


def with_bytecode(folder: Path) -> dict[str, str]:
    """An environment in which Python keeps what it compiles, as pip leaves it; the first run is slow."""
    environ = os.environ | {"PYTHONPYCACHEPREFIX": str(folder)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return environ


@contextmanager
def _no_bar(_label: str, _total: int | None) -> Iterator[ProgressCallback]:
    yield lambda _report: None


def _used(folder: Path) -> int:
    """KiB on disk, hard links once."""
    done = subprocess.run(["du", "-sk", folder], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])
