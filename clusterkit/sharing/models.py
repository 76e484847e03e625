"""Lists the models of a pulled run and chooses one. Reads small files; never loads a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from clusterkit.errors import RunError
from clusterkit.results.metrics import MetricRow, each, last_step, lines_of, rating_only, ratings
from clusterkit.untrusted import open_regular, read_object

FINAL_MODEL = "final_model.pt"


@dataclass(frozen=True)
class ExportedModel:
    """A model on this machine."""

    path: Path
    step: int | None
    """Environment steps it was trained for; None when unknown."""
    serial: int = 0
    """Position among the checkpoints in the order they were saved."""


def telling_rows(run_dir: Path) -> list[MetricRow]:
    """The rows of a run's metrics.jsonl that describe its models: the evaluations and one of the last step.

    The file is read row by row, as it may be larger than this machine's memory.
    """
    evaluations: list[MetricRow] = []
    last: MetricRow | None = None
    with suppress(OSError), open_regular(run_dir / "metrics.jsonl") as file:
        for row in each(lines_of(file)):
            last = row if last is None or (row.attempt, row.step) >= (last.attempt, last.step) else last
            if row.kind == "eval":
                evaluations.append(rating_only(row))
    return evaluations if last is None else [*evaluations, replace(last, kind="last", values={})]


def models_here(run_dir: Path, rows: Sequence[MetricRow]) -> list[ExportedModel]:
    """The local checkpoints of a run, oldest first, then its final model.

    Args:
        run_dir: of the pulled run.
        rows: of its metrics.jsonl, from which the step of the final model is taken.
    """
    found = []
    for folder in run_dir.glob("checkpoints/step-*"):
        manifest = read_object(folder / "manifest.json")
        if manifest is not None and (folder / "model.pt").is_file():
            step, serial = manifest.get("step"), manifest.get("serial")
            found.append(ExportedModel(folder, step, serial if isinstance(serial, int) else 0))
    found.sort(key=lambda model: (model.serial, model.path.name))
    final = run_dir / "checkpoints" / FINAL_MODEL
    if final.is_file():
        found.append(ExportedModel(final, last_step(rows)))
    return found


def choose(
    run_id: str, models: Sequence[ExportedModel], rows: Sequence[MetricRow], which: str
) -> tuple[ExportedModel, str | None]:
    """Choose the last or the best model.

    Args:
        run_id: for messages.
        models: from `models_here`.
        rows: of metrics.jsonl.
        which: `last`, or `best` for the highest success rate (else return) when evaluated in training.

    Returns:
        The model, and a message for the user about the choice.

    Raises:
        RunError: there is no model, or none of them was evaluated.
    """
    if not models:
        raise RunError(
            f"there is no checkpoint of {run_id} on this machine",
            hint=f"`clusterkit sync-results {run_id} --checkpoints last` downloads the newest one",
        )
    if which == "last":
        return models[-1], None
    measure, rates = ratings(rows)
    said_as = "{:.1%}" if measure == "success/mean" else "return {:.1f}"
    rated = [(rates[model.step], model) for model in models if model.step in rates]
    if not rated:
        raise RunError(
            f"{run_id}: no model on this machine was evaluated during training, so the best one is not known",
            hint="`--checkpoint last` uses the newest; "
            f"`clusterkit sync-results {run_id} --checkpoints all` brings the others",
        )
    rate, model = max(rated, key=lambda pair: (pair[0], pair[1].step or 0))
    highest = max(rates.values())
    said = f"best of {len(rated)} here: step {model.step:,}, {said_as.format(rate)} in training"
    if highest > rate:
        step = max(step for step, each in rates.items() if each == highest)
        said += f"; {said_as.format(highest)} was at step {step:,}, whose checkpoint is not on this machine"
    return model, said
