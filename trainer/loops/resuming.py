"""Which checkpoint a run goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainer import checkpoint
from trainer.arguments import NEWEST
from trainer.checkpoint import CheckpointStore
from trainer.errors import CheckpointError, UsageError
from trainer.loops.saving import of_rank
from trainer.loops.state import FoundCheckpoint
from trainer.ranks.parallel import Ranks
from trainer.settings import TrainSettings


def refuse_to_overwrite(settings: TrainSettings) -> None:
    """Looks whether a run that is to begin afresh would write over another.

    Raises:
        UsageError: it would.
    """
    held = checkpoint.directory(settings.run_dir)
    if settings.resume is None and any(held.glob("step-*")):
        raise UsageError(
            f"{held} already holds checkpoints",
            hint="continue with --resume, or start over in another --run-dir",
        )


def find(
    settings: TrainSettings, store: CheckpointStore, events: list[str], ranks: Ranks | None = None
) -> FoundCheckpoint | None:
    """Returns the checkpoint to go on from, if any, and notes what happened as events.

    Rank 0 looks for it, and for all that could be wrong with it.

    Raises:
        UsageError: the run directory already holds checkpoints and nobody asked to resume.
        CheckpointError: the checkpoint to resume does not fit, or none can be used.
    """
    ranks = ranks or Ranks()
    path, replay = ranks.share(_look(settings, store, events) if ranks.writes else (None, False))
    if path is None:
        return None
    parts, same_ranks = of_rank(_load(settings, store, path), ranks, settings.seed, events.append)
    events.append(f"resumed from {path.name} at step {parts['state']['progress']['step']:,}")
    if not (replay and same_ranks) and settings.recipe.entry.loop == "off-policy":
        events.append("the replay is lost: the policy refills it before training continues")
    return FoundCheckpoint(path, parts, replay and same_ranks)


def _look(settings: TrainSettings, store: CheckpointStore, events: list[str]) -> tuple[Path | None, bool]:
    """Returns the checkpoint to go on from, if any, and whether its replay is there too."""
    held = checkpoint.directory(settings.run_dir)
    refuse_to_overwrite(settings)
    if settings.resume is None:
        return None, False

    def refused(reason: str) -> None:
        events.append(f"refused: {reason}")

    path, replay = Path(settings.resume), False
    if settings.resume != NEWEST:
        replay = _has_replay(path, events)
    elif whole := store.newest(refused):
        path, replay = whole, True
    elif rest := checkpoint.newest(settings.run_dir, lambda _: None):
        path = rest
    elif events:
        raise CheckpointError(
            f"none of the checkpoints in {held} can be used",
            hint="\n".join((*events, "to start from the beginning, name another --run-dir")),
        )
    else:
        events.append("no checkpoint to resume: starting from the beginning")
        return None, False
    return path, replay


def _load(settings: TrainSettings, store: CheckpointStore, path: Path) -> dict[str, Any]:
    """Reads a checkpoint that this run can go on from.

    Raises:
        CheckpointError: it is another's.
    """
    parts = store.load(path)
    if not parts.keys() >= {"model", "state"}:
        raise CheckpointError(f"{path} is not a checkpoint of this trainer")
    _check_fit(path, parts["model"]["about"], settings)
    return parts


def _has_replay(path: Path, events: list[str]) -> bool:
    """Tells whether the checkpoint's replay is here, whole; notes the reason if not."""
    try:
        return checkpoint.verify(path, replay=True).replay is not None
    except CheckpointError as error:
        checkpoint.verify(path)  # without its replay it must be good all the same
        events.append(error.cause)
    return False


def _check_fit(path: Path, made_by: dict[str, Any], settings: TrainSettings) -> None:
    """Refuses a checkpoint of another recipe, or of other values of it."""
    ours = settings.recipe.as_json()
    theirs = made_by["recipe"]
    if theirs["name"] != ours["name"]:
        raise CheckpointError(f"{path} was made by recipe {theirs['name']}, not {ours['name']}")
    made_with = theirs["values"]
    for key, value in ours["values"].items():
        if made_with.get(key) != value:
            raise CheckpointError(
                f"{path} was made with {key} = {made_with.get(key)}, this run has {value}",
                hint="resume with the values it was made with",
            )
