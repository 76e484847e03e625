"""The checkpoints and models of pulled runs: which there are here, and which is the best. Loads no model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def best_steps(results: Path, run_ids: Iterable[str]) -> dict[str, int]:
    """Returns the step of the best evaluation by run id; runs without evaluations are omitted."""
    steps = {run_id: best_step(results / run_id / "metrics.jsonl") for run_id in run_ids}
    return {run_id: step for run_id, step in steps.items() if step is not None}


def best_step(metrics: Path) -> int | None:
    """Returns the step of the best evaluation; None without evaluations."""
    rows: list[MetricRow] = []
    with suppress(OSError), open_regular(metrics) as file:
        lines = (line for line in lines_of(file) if b'"eval"' in line)  # parsing takes the time
        rows += map(rating_only, each(lines))
    return _best(ratings(rows)[1])


def _best(rates: Mapping[int, float]) -> int | None:
    """Returns the step with the highest rate, the last of equals; see `ratings`."""
    return max(rates, key=lambda step: (rates[step], step), default=None)


def telling_rows(run_dir: Path) -> list[MetricRow]:
    """Returns the rows of a run that describe its models: the evaluations and one of the last step.

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
    """Returns the local checkpoints of a run, oldest first, then its final model.

    Args:
        run_dir: of the pulled run.
        rows: of its metrics.jsonl, from which the step of the final model is taken.
    """
    models = []
    for folder in run_dir.glob("checkpoints/step-*"):
        manifest = read_object(folder / "manifest.json")
        if manifest is not None and (folder / "model.pt").is_file():
            step, serial = manifest.get("step"), manifest.get("serial")
            models.append(ExportedModel(folder, step, serial if isinstance(serial, int) else 0))
    models.sort(key=lambda model: (model.serial, model.path.name))
    final = run_dir / "checkpoints" / FINAL_MODEL
    if final.is_file():
        models.append(ExportedModel(final, last_step(rows)))
    return models


def choose(
    run_id: str, models: Sequence[ExportedModel], rows: Sequence[MetricRow], which: str
) -> tuple[ExportedModel, str | None]:
    """Chooses the last or the best model.

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
    shown_as = "{:.1%}" if measure == "success/mean" else "return {:.1f}"
    rated = [model for model in models if model.step in rates]
    best = _best({step: rate for step, rate in rates.items() if any(model.step == step for model in rated)})
    if best is None:
        raise RunError(
            f"{run_id}: no model on this machine was evaluated during training, so the best one is not known",
            hint="`--checkpoint last` uses the newest; "
            f"`clusterkit sync-results {run_id} --checkpoints all` brings the others",
        )
    text = f"best of {len(rated)} here: step {best:,}, {shown_as.format(rates[best])} in training"
    highest = _best(rates)
    if highest is not None and rates[highest] > rates[best]:
        text += f"; {shown_as.format(rates[highest])} was at step {highest:,}"
        text += ", whose checkpoint is not on this machine"
    return next(model for model in rated if model.step == best), text
