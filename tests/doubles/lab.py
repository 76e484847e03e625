"""A shared disk with several people on it, who are users of no name, and a scheduler that all of them ask.

The folders, the shell scripts and the users are real; squeue and sacct print a file.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusterkit.commands import storage
from clusterkit.config.models import Cluster
from clusterkit.runs.ledger import Ledger, LedgerRun
from clusterkit.site import Site, make_site, open_site
from clusterkit.transport.base import Completed
from clusterkit.transport.faults import command_failed
from tests.doubles.slurm_site import Member, accounting_rows, queue_row, run_files
from tests.images.uploads import no_bar
from tests.programs import write_program

ALICE, BOB, LAB = 41001, 41002, 41099
"""Users of no name, each with a group of the same number, and a group that both are in."""
OLD = 1_767_225_600
"""Unix seconds, 2026-01-01."""


def new_lab() -> Iterator[Lab]:
    """A disk that everybody passes, as a fixture; pytest's own folders are private to root."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as laptops:
        Path(folder).chmod(0o755)
        lab = Lab(Path(folder), Path(laptops))
        lab.answers([])
        yield lab


@dataclass(frozen=True)
class AsUser:
    """A connection to this machine as another user, who finds a squeue and a sacct."""

    uid: int
    tools: Path
    groups: tuple[int, ...] = (LAB,)
    where: str = "lab"

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: float | None = 60.0, check: bool = True
    ) -> Completed:
        groups = ",".join(map(str, (self.uid, *self.groups)))
        user = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", f"--groups={groups}", "--"]
        env = {"PATH": f"{self.tools}:/usr/bin:/bin", "HOME": "/nonexistent"}
        done = subprocess.run([*user, *argv], input=stdin, capture_output=True, env=env, timeout=timeout)
        completed = Completed(tuple(argv), done.returncode, done.stdout, done.stderr)
        if check and done.returncode != 0:
            raise command_failed(completed, where=self.where)
        return completed


@dataclass(frozen=True)
class _Login:
    connection: AsUser

    def transport(self) -> AsUser:
        return self.connection


@dataclass
class Lab:
    """A shared disk, its scheduler, and who works there."""

    disk: Path
    laptops: Path
    """Where everybody's ledgers lie."""

    def answers(self, jobs: Sequence[Member]) -> None:
        """What squeue and sacct know."""
        queue = [queue_row(job) for job in jobs if job.state.active]
        booked = [row for job in jobs for row in accounting_rows(job)]
        for tool, rows in (("squeue", queue), ("sacct", booked)):
            text = "".join(f"{row}\n".replace("|", "\x1f") for row in rows)
            (self.disk / f"{tool}.out").write_text(text)
            (self.disk / f"{tool}.out").chmod(0o755)
            write_program(self.disk, tool, f"cat {self.disk}/{tool}.out")

    def person(self, uid: int, root: str, *, store: str | None = None, group: bool = False) -> Person:
        home = self.disk / root.partition("/")[0]
        if not home.exists():
            home.mkdir(mode=0o711)
            os.chown(home, uid, uid)
        cluster = Cluster(
            name="uni",
            root=f"{self.disk}/{root}",
            image_store=f"{self.disk}/{store}" if store else None,
            group=str(LAB) if group else None,
            trust=(str(ALICE), str(BOB), str(LAB)),
            container="none",
        )
        return Person(self, uid, cluster)


@dataclass
class Person:
    """Somebody with a work root."""

    lab: Lab
    uid: int
    cluster: Cluster

    @property
    def transport(self) -> AsUser:
        return AsUser(self.uid, self.lab.disk)

    def site(self, *, create: bool = False) -> Site:
        if create:
            return make_site(self.cluster, self.transport)  # type: ignore[arg-type]
        with open_site(self.cluster, create=False, login=_Login(self.transport)) as site:  # type: ignore[arg-type]
            return site

    @property
    def store(self) -> Path:
        return Path(self.cluster.image_root)

    def image(self, letter: str = "a", prefix: str = "") -> Path:
        """An image that this person has sent long ago."""
        site = self.site(create=True)
        path = self.store / f"{prefix}sha256-{letter * 64}.sif"
        mode = self.site().sharing.file
        site.transport.run(["sh", "-c", 'umask 077; echo x >"$1" && chmod "$2" "$1"', "sh", str(path), mode])
        os.utime(path, (OLD, OLD))
        return path

    def has_run(self, member: Member, image: Path, more: Mapping[str, str] | None = None) -> Path:
        """A run of this person as it lies on the cluster; `more` of its files by path."""
        run_dir = Path(self.cluster.root) / "runs" / member.run_id
        self.site(create=True)
        for name, content in {**run_files(member), **(more or {})}.items():
            path = run_dir / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        document = json.loads((run_dir / "run.json").read_text())
        document |= {"image": {"path": str(image)}, "workdir": f"{self.cluster.root}/snapshots/c0de/project"}
        (run_dir / "run.json").write_text(json.dumps(document))
        for path in (run_dir, *run_dir.rglob("*")):
            path.chmod(0o700)
            os.chown(path, self.uid, self.uid)
        return run_dir

    def prunes(
        self,
        *,
        ended: bool = True,
        known: Sequence[LedgerRun] = (),
        agrees: Callable[..., bool] = lambda *_: True,
    ) -> storage.Garbage:
        """Removes what no run needs, as the command does with a ledger that knows these runs."""

        @contextmanager
        def opens(cluster: Cluster, *, create: bool = True) -> Iterator[Site]:
            yield self.site(create=create)

        name = f"{self.uid}-{self.cluster.root.replace('/', '-')}"
        with pytest.MonkeyPatch.context() as patch, Ledger(self.lab.laptops / name) as ledger:
            patch.setattr(storage, "open_site", opens)
            ledger.add_all(known)
            return storage.prune(self.cluster, ledger, ended=ended, agrees=agrees, bar=no_bar)
