"""The output of evaluate and play."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from clusterkit.cli.ui.console import err, note, out, print_document, printable, say
from clusterkit.cli.ui.lines import plain_table
from clusterkit.units import plural

if TYPE_CHECKING:
    from rich.table import Table


_BAR = 20


@dataclass(frozen=True)
class ChosenModel:
    """A model to use."""

    path: Path
    name: str
    """The run id, or the path if the model belongs to no run."""
    home: Path
    """The folder for files made from it."""
    said: str | None = None
    """Why this model was chosen."""
    environment: str | None = None
    """Environment that the user says it was trained in, vouching for its module."""
    pulled: tuple[Path, ...] = ()
    """Folders with other people's files, whose code is never run."""


@dataclass(frozen=True)
class Score:
    """A policy's results in a task."""

    success: float | None
    """0..1; None if the environment does not define success."""
    low: float | None
    """Lower bound of the 95% interval of the success rate, or of the return without one."""
    high: float | None
    """Upper bound of the interval; None for a single episode."""
    mean_return: float
    """Mean return of an episode."""
    steps: float
    """Mean length of an episode."""


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation."""

    model: ChosenModel
    step: int
    episodes: int
    """Episodes per task."""
    tasks: dict[str, Score]
    mean: Score


def show_choice(model: ChosenModel) -> None:
    """Prints which model was chosen."""
    note(f"{printable(model.name)}: {printable(model.path.name)}" + (f", {model.said}" if model.said else ""))


@contextmanager
def working(what: str) -> Iterator[None]:
    """Shows a spinner during a long operation; shows nothing without a terminal."""
    if not err.is_terminal:
        yield
        return
    with err.status(what):
        yield


def show_evaluated(evaluated: Evaluated) -> None:
    """Prints one line per task and one for their mean; without success rates, the environment's returns."""
    if evaluated.mean.success is None:
        _show_returns(evaluated)
        return
    numbers = ("success", "95% interval", "return")
    table = plain_table("task", *numbers, "", right=numbers)
    for name, score in evaluated.tasks.items():
        _add(table, name, score)
    _add(table, "mean", evaluated.mean, style="bold")
    out.print(table)
    note(f"step {evaluated.step:,}, {plural(evaluated.episodes, 'episode')} per task")


def print_json(evaluated: Evaluated) -> None:
    """Prints one JSON object on standard output; see docs/json.md."""
    model = evaluated.model
    document = {
        "schema": 1,
        "model": model.name,
        "path": str(model.path),
        "step": evaluated.step,
        "episodes": evaluated.episodes,
        "mean": asdict(evaluated.mean),
        "tasks": {name: asdict(score) for name, score in evaluated.tasks.items()},
    }
    print_document(document)


def show_films(paths: Sequence[Path]) -> None:
    """Prints the files that were made, one path per line."""
    for path in paths:
        say(str(path))


def _show_returns(evaluated: Evaluated) -> None:
    numbers = ("return", "95% interval", "steps")
    table = plain_table("environment", *numbers, right=numbers)
    for name, score in evaluated.tasks.items():
        known = score.low is not None and score.high is not None
        interval = f"{score.low:.1f} .. {score.high:.1f}" if known else ""
        table.add_row(Text(name), f"{score.mean_return:.1f}", interval, f"{score.steps:.0f}")
    out.print(table)
    note(f"step {evaluated.step:,}, {plural(evaluated.episodes, 'episode')}")


def _add(table: Table, name: str, score: Score, style: str = "") -> None:
    assert score.success is not None and score.low is not None and score.high is not None  # noqa: PT018
    low, high = round(score.low * _BAR), round(score.high * _BAR)
    at = min(_BAR - 1, round(score.success * _BAR))
    bar = Text("".join("●" if x == at else "─" if low <= x < high else " " for x in range(_BAR)), "cyan")
    table.add_row(
        Text(name, style=style),
        Text(f"{score.success:.1%}", style=style),
        f"{score.low:.1%} - {score.high:.1%}",
        f"{score.mean_return:.1f}",
        bar,
    )
