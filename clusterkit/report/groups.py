"""Groups pulled runs by seed, with their curves."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from clusterkit.report.statistics import Interval, student, wilson
from clusterkit.results.logs.run_logs import read_run
from clusterkit.results.metrics import LOG, MetricRow, last_step, latest, own_names, stretched
from clusterkit.results.series import Series, series
from clusterkit.runs.run_dir import RunDirectory, read_run_dir, table

_SUCCESS, _RETURN = "success/", "return/"
_STRETCHES = 50
"""Points of a curve of training returns."""


@dataclass(frozen=True)
class ReportRun:
    """One pulled run and its metrics."""

    directory: RunDirectory
    rows: tuple[MetricRow, ...]
    faults: Mapping[str, str] = field(default_factory=dict)
    """Why log files, by path, were not read to their end."""

    @property
    def document(self) -> Mapping[str, Any]:
        """run.json."""
        return self.directory.document

    @property
    def recipe(self) -> Mapping[str, Any]:
        """The recipe's entry of run.json; empty for a program of the user's own."""
        return table(self.document, "recipe")

    @property
    def header(self) -> Mapping[str, Any]:
        """The newest `run` line of the metrics; empty without one."""
        return next((row.values for row in reversed(self.rows) if row.kind == "run"), {})

    @cached_property
    def evaluations(self) -> list[MetricRow]:
        """Evaluations by step, the attempt rule applied."""
        return latest(self.rows, "eval")

    @cached_property
    def training(self) -> list[MetricRow]:
        """Training rows by step, the attempt rule applied."""
        return latest(self.rows, "train")

    @cached_property
    def own_names(self) -> list[str]:
        """The names that a user's own program logs; empty for the bundled trainer."""
        return [] if self.recipe else own_names(self.rows)

    @property
    def drawable(self) -> bool:
        """Whether it has data to draw over steps."""
        return bool(self.evaluations or self.own_names or (self.returns and not self.recipe))

    def series(self, name: str) -> Series:
        """Returns the values of a number, from the rows that its curve is drawn from."""
        return series(self._rows_of(name), name)

    def lost_from(self, name: str) -> int | None:
        """Returns the step from which a success rate or return was not finite to the end, if there is one."""
        rows = self._rows_of(name)
        last = next((row for row in reversed(rows) if name in row.values), None)
        return None if last is None or last.number(name) is not None else series(rows, name).lost_from

    def _rows_of(self, name: str) -> Sequence[MetricRow]:
        if not self.recipe:
            return self.rows
        if name.startswith(_RETURN):
            logged = any(key.startswith(_RETURN) for row in self.training for key in row.values)
            return self.training if logged else self.evaluations
        return self.evaluations if name.startswith(_SUCCESS) else self.rows

    @cached_property
    def returns(self) -> list[MetricRow]:
        """Rows with returns: means of training episodes over intervals, or else of evaluations.

        An evaluation episode may stop at success, so that better policies have smaller returns.
        """
        stretch = max(1, -(-self.last_step // _STRETCHES))
        return stretched(self.training, _RETURN, stretch) or self.evaluations

    @property
    def steps_per_second(self) -> float | None:
        """Median over the training rows; for a program that logs no speed the mean from row to row."""
        rates = [rate for row in self.training if (rate := row.number("steps_per_second")) is not None]
        if rates:
            return statistics.median(rates)
        return _pace(self.training or [row for row in latest(self.rows, LOG) if row.time])

    @property
    def last_step(self) -> int:
        """The step that its last attempt reached."""
        return last_step(self.rows) or 0


@dataclass(frozen=True)
class Point:
    """A value on a curve."""

    step: int
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class ReportGroup:
    """Runs that differ only in their seed."""

    label: str
    runs: tuple[ReportRun, ...]

    @cached_property
    def tasks(self) -> tuple[str, ...]:
        """Task names in the order in which the program logs them."""
        keys = (key for run in self.runs for row in run.evaluations for key in row.values)
        names = (key.removeprefix(_SUCCESS) for key in keys if key.startswith(_SUCCESS))
        return tuple(dict.fromkeys(name for name in names if name != "mean"))

    @cached_property
    def final_step(self) -> int | None:
        """The last step at which every run was evaluated; the last of any when there is no such step."""
        steps = {row.step for run in self.runs for row in run.evaluations}
        return max(self.common_steps or steps, default=None)

    @cached_property
    def common_steps(self) -> list[int]:
        """Steps at which every run was evaluated, ascending."""
        return sorted(set.intersection(*({row.step for row in run.evaluations} for run in self.runs)))

    def evaluates(self, name: str) -> bool:
        """Whether a number is a success rate of evaluations, or a return of the bundled trainer."""
        if name.startswith(_RETURN):
            return any(run.recipe for run in self.runs)
        return name.startswith(_SUCCESS) and any(
            name in row.values for run in self.runs for row in run.evaluations
        )

    def curve(self, key: str) -> list[Point]:
        """Returns the mean of a success rate or a return over runs, with its 95% interval, by step.

        For several runs it is Student's t; for success rates of one run the logged interval. Without one, or
        for runs that agree exactly (with zero spread), it is Wilson's over all their episodes. The mean ends
        where a run diverges: that of the others would be another one.
        """
        rows = [run.returns if key.startswith(_RETURN) else run.evaluations for run in self.runs]
        lost = [step for run in self.runs if (step := run.lost_from(key)) is not None]
        logged: dict[int, Interval] = {}
        values: dict[int, list[float]] = {}
        trials: dict[int, int] = {}
        for rows_of_run in rows:
            for row in rows_of_run:
                value = row.number(key)
                if value is not None and row.step < min(lost, default=math.inf):
                    values.setdefault(row.step, []).append(value)
                    trials[row.step] = trials.get(row.step, 0) + self._trials(row, key)
                    if key.startswith(_SUCCESS) and (interval := _logged(row, key.removeprefix(_SUCCESS))):
                        logged[row.step] = interval
        return [
            Point(
                step,
                statistics.fmean(at),
                (logged.get(step) if len(at) == 1 else None) or self._interval(key, at, trials[step]),
            )
            for step, at in sorted(values.items())
        ]

    def final(self, key: str) -> Point | None:
        """Returns the point of a curve at the final step; of a return the last one.

        If runs diverged, it is the others' and has no interval, because they are a selection.
        """
        left = tuple(run for run in self.runs if run.lost_from(key) is None)
        if len(left) < len(self.runs):
            point = replace(self, runs=left).final(key) if left else None
            return point and replace(point, interval=None)
        curve = self.curve(key)
        if key.startswith(_RETURN):
            return curve[-1] if curve else None
        return next((point for point in curve if point.step == self.final_step), None)

    def final_scores(self) -> list[list[float]]:
        """Returns the final success rates: one list of tasks a run."""
        return [] if self.final_step is None else self.scores(self.final_step)

    def final_means(self) -> list[float]:
        """Returns the mean success over tasks at the final step, one a run."""
        rows = [row for run in self.runs for row in run.evaluations if row.step == self.final_step]
        return [rate for row in rows if (rate := row.number(f"{_SUCCESS}mean")) is not None]

    def scores(self, step: int) -> list[list[float]]:
        """Success rates at a step: one list of tasks a run."""
        rows = [row for run in self.runs for row in run.evaluations if row.step == step]
        return [
            [rate for task in self.tasks if (rate := row.number(_SUCCESS + task)) is not None] for row in rows
        ]

    def _trials(self, row: MetricRow, key: str) -> int:
        episodes = int(min(row.number("episodes") or 0.0, 1e9))  # so many that an interval has no width
        return episodes * len(self.tasks) if key == "success/mean" else episodes

    def _interval(self, key: str, values: Sequence[float], trials: int) -> Interval | None:
        if not key.startswith(_SUCCESS):
            return student(values)
        if len(set(values)) == 1:
            return wilson(min(1.0, max(0.0, values[0])), trials)
        interval = student(values)
        return interval and Interval(max(0.0, interval.low), min(1.0, interval.high))


def _pace(rows: Sequence[MetricRow]) -> float | None:
    """Returns steps a second while attempts went on, by the times of two rows or more; else None."""
    steps = seconds = 0.0
    for before, after in pairwise(rows):
        if before.attempt == after.attempt and after.time > before.time:
            steps, seconds = steps + after.step - before.step, seconds + after.time - before.time
    return steps / seconds if steps > 0 else None


def _logged(row: MetricRow, task: str) -> Interval | None:
    """Returns the program's own interval of a success rate, which accounts for dependent episodes."""
    low, high = (row.number(f"success_{side}/{task}") for side in ("low", "high"))
    return None if low is None or high is None else Interval(low, high)


def read_runs(folders: Iterable[Path], step: str | None = None) -> list[ReportRun]:
    """Reads pulled run directories.

    Args:
        folders: of the runs.
        step: the name of the steps in logs of users' own programs; None finds it.

    Raises:
        RunError: a folder is not a run.
    """
    runs = []
    for folder in folders:
        directory = read_run_dir(folder)
        logs = read_run(folder, own=not table(directory.document, "recipe"), step=step)
        runs.append(ReportRun(directory, logs.rows, logs.faults))
    return runs


def group_runs(runs: Iterable[ReportRun]) -> list[ReportGroup]:
    """Groups runs that differ only in their seed, in order of first appearance.

    A group's runs share their name, recipe, modified values and sweep values.
    """
    groups: dict[tuple[str, str, str], list[ReportRun]] = {}
    for run in runs:
        name = str(run.document.get("name") or run.directory.run_id)
        point = table(run.document, "sweep")
        swept = ", ".join(f"{key}={text}" for key, text in point.items() if key != "seed")
        modified = json.dumps(run.recipe.get("modified") or {}, sort_keys=True)
        label = f"{name} {swept}" if swept else name
        groups.setdefault((label, str(run.recipe.get("name") or ""), modified), []).append(run)
    labels = _labels(list(groups))
    return [
        ReportGroup(label, tuple(members)) for label, members in zip(labels, groups.values(), strict=True)
    ]


def _labels(keys: Sequence[tuple[str, str, str]]) -> list[str]:
    """Returns a name for each group, with the recipe if names repeat, and a number if still needed."""
    names = [name for name, _, _ in keys]
    labels: list[str] = []
    for name, recipe, modified in keys:
        label = name
        if names.count(name) > 1:
            label += f" ({recipe or 'no recipe'}{', modified' if modified != '{}' else ''})"
        same = sum(other == label or other.startswith(f"{label} #") for other in labels)
        labels.append(f"{label} #{same + 1}" if same else label)
    return labels
