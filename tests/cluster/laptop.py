"""A person at a laptop, with a project folder whose clusters are the test cluster, seen in several ways."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import forked
from tests.allowing import allow, state
from tests.cluster.cluster import Cluster
from tests.cluster.rootfs import USERS
from tests.waiting import until

_GPUS = """
[clusters.site.gpus]
a40 = {{ partition = "gpu-a40", request = "--gpus={{type}}:{{count}}" }}
a100 = {{ partition = "gpu-a100" }}
"""
SETTINGS = (
    """
[project]
name = "journey"
default_cluster = "site"
default_profile = "tiny"

[clusters.site]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
image = "{image}"
"""
    + _GPUS
    + """
[profiles.tiny]
gpu = "a40"
cpus = 2
memory = "3G"
time = "10m"
recipe = "local-demo"
total_steps = 800
num_envs = 8
workers = 0
device = "cpu"
mujoco_gl = "osmesa"
eval_every = 400
eval_episodes = 1
checkpoint_every = 400

[profiles.brief]
extends = "tiny"
program = ["true"]

[profiles.tiny-a100]
extends = "tiny"
gpu = "a100"
"""
)
BARE = (
    """
[project]
name = "bare"
default_cluster = "site"
default_profile = "tiny"

[clusters.site]
host = "login"
ssh_config = "{ssh_config}"
root = "/share/$USER/{root}"
container = "none"
"""
    + _GPUS
)
"""Of a project whose programs run without a container; it needs a profile `tiny`."""


def on_share(cluster: Cluster, image: Path) -> Path:
    """This machine's view of an image on a cluster's /share: one copy, whoever needs it, and the user's."""
    there = cluster.share / "images" / f"sha256-{_sha256(image)}.sif"
    if not there.exists():
        there.parent.mkdir(exist_ok=True)
        there.parent.chmod(0o755)
        shutil.copyfile(image, there)
        os.chown(there, USERS[cluster.user], USERS[cluster.user])
    return there


@functools.cache
def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


@dataclass(frozen=True)
class User:
    """A person at a laptop, in a project folder."""

    folder: Path
    cluster: Cluster

    @classmethod
    def settle(cls, home: Path, cluster: Cluster, image: Path) -> User:
        """Make the project folder, `journey`, and its settings."""
        folder = home / "journey"
        folder.mkdir()
        (folder / "notes.txt").write_text("part of the snapshot\n")
        (folder / "clusterkit.toml").write_text(
            SETTINGS.format(ssh_config=cluster.ssh_config, image=image, root=home.name)
        )
        return cls(folder, cluster)

    @classmethod
    def bare(
        cls, home: Path, cluster: Cluster, settings: str, files: Mapping[str, str] = {}, **words: str
    ) -> User:
        """Make a project of these files and of `BARE` with these settings, into which words are filled."""
        folder = home / "project"
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
        filled = (BARE + settings).format(ssh_config=cluster.ssh_config, root=home.name, **words)
        (folder / "clusterkit.toml").write_text(filled)
        return cls(folder, cluster)

    def __post_init__(self) -> None:
        """Allow what the settings, if there are any yet, name for this machine."""
        if (self.folder / "clusterkit.toml").exists():
            allow(self.folder)

    def has_image(self, image: Path) -> None:
        """Put an image into the cluster's store, as an earlier deploy has."""
        folder = f"/share/{self.root.relative_to(self.cluster.share)}/images"
        self.cluster.run("login", ["sh", "-c", f"umask 077; mkdir -p {folder}"], user=self.cluster.user)
        there = on_share(self.cluster, image)
        os.link(there, self.root / "images" / there.name)

    @property
    def root(self) -> Path:
        """This machine's view of the cluster's work root."""
        return self.cluster.share / "alice" / self.folder.parent.name

    def types(self, *words: str, **variables: str) -> str:
        """Run a clusterkit command that must succeed; returns its standard output."""
        done = self.tries(*words, **variables)
        assert done.returncode == 0, f"clusterkit {words}: {done.stdout}{done.stderr}"
        return done.stdout

    def tries(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a clusterkit command that may fail."""
        return forked.run(words, folder=self.folder, env=self._env(variables))

    def starts(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start a clusterkit command, with no terminal and nothing of this machine's user around it."""
        return subprocess.Popen(
            [sys.executable, "-m", "clusterkit", *words],
            cwd=self.folder,
            env=self._env(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def forks(self, *words: str) -> forked.Process | subprocess.Popen[str]:
        """The same with both streams in one, and of a process that need not import anything."""
        return forked.start(words, env=self._env({}), folder=self.folder, program="clusterkit")

    def _env(self, variables: Mapping[str, str]) -> dict[str, str]:
        home = str(self.folder.parent)
        own = {"PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home, "COLUMNS": "200"}
        return forked.of_python() | own | state() | variables

    def status(self, *names: str) -> dict[str, dict[str, Any]]:
        """`clusterkit status --json`, by run id."""
        report = json.loads(self.types("status", "--json", *names))
        assert report["silent"] == {}
        return {run["run_id"]: run for run in report["runs"]}

    def ended(self, *run_ids: str) -> dict[str, dict[str, Any]]:
        """Wait until no job of these runs is active, at no login's cost; returns their `status`."""
        until(lambda: not {name for name in self.active() if name.partition(".")[0] in run_ids}, 400)
        return self.status(*run_ids)

    def active(self) -> set[str]:
        """The names of jobs in the queue that have not ended."""
        argv = ["squeue", "-h", "-r", "-o", "%j", "-t", "PD,R,CG,CF,RQ,SI,ST,S"]
        return set(self.cluster.run("ctl", argv).stdout.split())

    def submits(self, *words: str) -> str:
        """Submit; returns the run id, which is all that standard output holds."""
        return self.types("submit", *words).strip()

    @contextmanager
    def keeping_login(self, cluster: str = "site") -> Iterator[None]:
        """Let all commands meanwhile ride on one login, where logins are not what is tested."""
        self.types("login", cluster)
        try:
            yield
        finally:
            self.types("logout", cluster)

    @contextmanager
    def logging_in(self, times: int) -> Iterator[None]:
        """Assert how many logins the login node's sshd accepts meanwhile."""
        before = self.cluster.logins()
        yield
        assert self.cluster.logins() - before == times
