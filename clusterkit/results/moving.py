"""Takes a run to another cluster: its directory, its code, by way of this machine. The image is deploy's."""

from __future__ import annotations

import json
import posixpath
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clusterkit import snapshots
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.errors import ConfigError, ImageError, RunError
from clusterkit.images.image import Image
from clusterkit.images.image import present as image_present
from clusterkit.results.pull import NOT_HOME, PulledRun, pull_runs
from clusterkit.results.selection import Checkpoints
from clusterkit.runs.ledger import LedgerRun
from clusterkit.runs.spec import snapshot_ids
from clusterkit.site import Site
from clusterkit.transport.base import Bar, SyncOptions

NOTES = ("stopped.json", "moved.json")
"""Files of a run directory that are void when the run goes on there."""
_LEFT_BEHIND = (
    *("/wandb/", "/report/", f"/{SCHEDULER_LOG}", *(f"/{name}" for name in NOTES)),
    *("/attempts/*/log", "/attempts/*/stderr"),
)
"""What no program needs to go on; it is at home, in the results."""


def check_target(target: Site, run: LedgerRun, document: Mapping[str, Any]) -> None:
    """Find out whether a run could go on there, before anything is moved.

    Raises:
        ConfigError: it began in a container and would go on without one, or the other way round.
        ImageError: its image is not there.
    """
    facts, cluster = document.get("image"), target.cluster
    if (facts is None) != (cluster.container == "none"):
        began = "without a container" if facts is None else "in an image"
        raise ConfigError(
            f'{run.run_id} began {began}, and {cluster.name} has container = "{cluster.container}"',
            hint="choose a cluster that runs programs in the same way",
        )
    if facts and not image_present(target, Image(str(facts["digest"]), int(facts["bytes"]))):
        raise ImageError(
            f"{target.transport.where}: the run's image {str(facts['digest'])[:12]} is not there",
            hint=f"`clusterkit deploy --cluster {cluster.name} --image FILE.sif` brings the same file",
        )


def move(
    source: Site, target: Site, run: LedgerRun, document: Mapping[str, Any], results: Path, *, bar: Bar
) -> None:
    """Copy what a run needs to go on; safe to repeat.

    All of the run comes home into the results, checkpoints and replay included; what resuming needs goes on
    from there. The old directory stays.

    Args:
        source: where it lies.
        target: where it shall go on; `check_target` has found nothing.
        run: which.
        document: its run.json.
        results: the project's results folder.
        bar: opens progress bars.

    Raises:
        RunError: some of it cannot be brought here, and would be missing there.
        TransportError: a transfer broke off.
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
        for identity in snapshot_ids(document):
            _move_snapshot(source, target, identity)
        there = target.layout.run(run.run_id)
        # By content: what an earlier stay left there may have the size of today's.
        options = SyncOptions(exclude=_LEFT_BEHIND, checksum=True, mode="D700,F600")
        target.transport.push(results / run.run_id, there, options=options, progress=progress)


def _check_whole(run: LedgerRun, pulled: PulledRun) -> None:
    """What is not at home, but for what no program needs, would be missing where the run goes on."""
    away = [each.removeprefix(NOT_HOME) for each in pulled.problems if each.startswith(NOT_HOME)]
    needed = [each for each in away if not each.startswith("wandb/")]
    if needed:
        raise RunError(
            f"{run.run_id} cannot be moved whole: {'; '.join(needed)}",
            hint=f"see to these in {run.run_dir} on {run.cluster}, or remove them there; nothing was moved",
        )


def leave_note(source: Site, run: LedgerRun, moved: LedgerRun) -> None:
    """Say in the old run directory where the run has gone."""
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
