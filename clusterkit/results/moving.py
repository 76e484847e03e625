"""Moves a run to another cluster: its directory and code, via this machine. `deploy` uploads the image."""

from __future__ import annotations

import json
import posixpath
import tempfile
import time
from pathlib import Path

from clusterkit import snapshots
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.errors import ImageError, RunError
from clusterkit.images.image import present as image_present
from clusterkit.results.pull import NOT_HOME, PulledRun, pull_runs
from clusterkit.results.selection import Checkpoints
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.spec import RunSpec, must_start_alike
from clusterkit.site import Site
from clusterkit.transport.base import Bar, SyncOptions

NOTES = ("stopped.json", "moved.json")
"""Files of a run directory that no longer hold when the run resumes in it."""
_LEFT_BEHIND = (
    *("/wandb/", "/report/", f"/{SCHEDULER_LOG}", *(f"/{name}" for name in NOTES)),
    *("/attempts/*/log", "/attempts/*/stderr", "/attempts/*/ranks"),
)
"""Files that resuming does not need; the local results keep them."""


def check_target(target: Site, spec: RunSpec) -> None:
    """Checks that a run could resume on the target, before anything is moved.

    Raises:
        ConfigError: it began in a container and the target uses none, or vice versa.
        ImageError: the target lacks its image.
    """
    image, cluster = spec.stored_image, target.cluster
    must_start_alike(spec, cluster)
    if image and not image_present(target, image):
        raise ImageError(
            f"{target.transport.where}: the run's image {image.digest[:12]} is not there",
            hint=f"`clusterkit deploy --cluster {cluster.name} --image FILE.sif` uploads the same file",
        )


def move(source: Site, target: Site, run: LedgerRun, spec: RunSpec, results: Path, *, bar: Bar) -> None:
    """Copies a run to another cluster so that it can resume there; safe to repeat.

    The whole run is pulled into the results, including checkpoints and replay; the files that resuming needs
    are then pushed to the target. The old directory is kept.

    Args:
        source: the cluster that has the run.
        target: the cluster to resume on, which has passed `check_target`.
        run: to move.
        spec: its description.
        results: the project's results folder.
        bar: opens progress bars.

    Raises:
        RunError: a needed file cannot be pulled.
        TransportError: a transfer was interrupted.
    """
    with bar(f"{run.run_id} from {run.cluster}", None) as progress:
        (pulled,) = pull_runs(
            source.transport,
            runs_root=posixpath.dirname(run.run_dir),
            run_ids=[run.run_id],
            results=results,
            checkpoints=Checkpoints.ALL,
            progress=progress,
        )
    _check_whole(run, pulled)
    with bar(f"{run.run_id} to {target.cluster.name}", None) as progress:
        for identity in spec.trees:
            _move_snapshot(source, target, identity)
        there = target.layout.run(run.run_id)
        # By content: files left from an earlier stay on the target may have the same size.
        options = SyncOptions(exclude=_LEFT_BEHIND, checksum=True, mode="D700,F600")
        target.transport.push(results / run.run_id, there, options=options, progress=progress)


def _check_whole(run: LedgerRun, pulled: PulledRun) -> None:
    """Raises RunError if a file that resuming needs was not pulled."""
    away = [problem.removeprefix(NOT_HOME) for problem in pulled.problems if problem.startswith(NOT_HOME)]
    needed = [problem for problem in away if not problem.startswith("wandb/")]
    if needed:
        raise RunError(
            f"{run.run_id} cannot be moved completely: {'; '.join(needed)}",
            hint=f"correct these in {run.run_dir} on {run.cluster}, or remove them there; nothing was moved",
        )


def leave_note(source: Site, run: LedgerRun, moved: LedgerRun) -> None:
    """Records in the old run directory where the run has moved."""
    note = {"cluster": moved.cluster, "run_dir": moved.run_dir, "time": int(time.time())}
    source.transport.write(f"{run.run_dir}/moved.json", (json.dumps(note) + "\n").encode())


def _move_snapshot(source: Site, target: Site, identity: str) -> None:
    there = f"{target.layout.snapshots}/{identity}"
    if target.transport.run(["test", "-d", there], check=False).returncode == 0:
        return
    with tempfile.TemporaryDirectory(prefix="clusterkit-") as folder:
        here = Path(folder, "snapshot")
        source.transport.pull(f"{source.layout.snapshots}/{identity}/", here, options=SyncOptions(mode="u+w"))
        snapshots.transplant(target, identity, here)
