"""The result of an evaluation: rates and returns of each task, with their 95% intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from trainer.recipe.quantiles import student_quantile


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
        tasks: task names.
        goals: int (episodes,), the goal that each task's episode was played with.
        success: bool (tasks, episodes), solved at any step; None if the environment does not report success.
        returns: float (tasks, episodes), the rewards up to the episode's end; a solved episode of Meta-World
            ends at once.
        lengths: int (tasks, episodes), the steps up to the episode's end.
    """

    tasks: Sequence[str]
    goals: npt.NDArray[np.int32]
    success: npt.NDArray[np.bool_] | None
    returns: npt.NDArray[np.float64]
    lengths: npt.NDArray[np.int64]

    @property
    def level(self) -> float:
        """Mean success of all tasks, 0..1; the mean return where the environment reports no success."""
        return float((self.returns if self.success is None else self.success).mean())

    def metrics(self) -> dict[str, float | int]:
        """Returns the numbers under the names of `metrics.jsonl`; `_low` and `_high` span 95%."""
        returns, lengths = self.returns.mean(1), self.lengths.mean(1)
        columns = [*self._rates(), ("return", returns.mean(), returns), ("length", lengths.mean(), lengths)]
        # a return's interval is that of independent episodes of one task
        if len(self.tasks) == 1 and 1 < self.goals.size == np.unique(self.goals).size:
            for side, bound in zip(("low", "high"), student(self.returns[0]), strict=True):
                columns.append((f"return_{side}", bound, np.array([bound])))
        rows: dict[str, float | int] = {}
        for name, mean, values in columns:
            rows[f"{name}/mean"] = float(mean)
            rows |= {f"{name}/{task}": float(value) for task, value in zip(self.tasks, values, strict=True)}
        return rows | {"episodes": self.returns.shape[1]}

    def _rates(self) -> list[tuple[str, float, npt.NDArray[np.float64]]]:
        """Name, mean and each task's value of the success rates and their bounds."""
        if self.success is None:
            return []
        # policy and environment are deterministic: to play a goal again tells nothing new
        trials = int(np.unique(self.goals).size)
        success = self.success.mean(1)
        low, high = wilson(success, trials)
        mean_low, mean_high = wilson_of_mean(success, trials)
        return [
            ("success", float(success.mean()), success),
            ("success_low", mean_low, low),
            ("success_high", mean_high, high),
        ]


def table(result: Evaluation) -> str:
    """Returns success with its interval, and return, of each task and of their mean, aligned.

    Without success: the return with its interval, and the length of an episode.
    """
    metrics = result.metrics()
    width = max(len(name) for name in ("task", *result.tasks))
    if result.success is None:
        return _returns(result.tasks, metrics, width)
    rows = [f"{'task':<{width}}  success    95% interval  return"]
    for name in (*result.tasks, "mean"):
        success, low, high, mean_return = (
            metrics[f"{key}/{name}"] for key in ("success", "success_low", "success_high", "return")
        )
        interval = f"{low:.1%} - {high:.1%}"
        rows.append(f"{name:<{width}}  {success:>7.1%}  {interval:>14}  {mean_return:>6.1f}")
    return "\n".join(rows)


def _returns(tasks: Sequence[str], metrics: Mapping[str, float | int], width: int) -> str:
    rows = [f"{'task':<{width}}    return       95% interval  steps"]
    for name in tasks:
        low, high = (metrics.get(f"return_{side}/{name}") for side in ("low", "high"))
        interval = "" if low is None or high is None else f"{low:.1f} .. {high:.1f}"
        cells = metrics[f"return/{name}"], interval, metrics[f"length/{name}"]
        rows.append(f"{name:<{width}}  {cells[0]:>8.1f}  {cells[1]:>17}  {cells[2]:>5.0f}")
    return "\n".join(rows)


_Z = NormalDist().inv_cdf(0.975)

Rates = npt.NDArray[np.float64]


def wilson(rate: Rates, trials: npt.NDArray[np.float64] | float) -> tuple[Rates, Rates]:
    """Wilson's score interval of success rates (Wilson 1927).

    Unlike the normal approximation it stays inside 0..1 and does not collapse at 0 of n or n of n.

    Args:
        rate: successes / trials, 0..1, of any shape.
        trials: independent episodes behind each rate.

    Returns:
        Lower and upper bounds, of the rates' shape.
    """
    scale = 1 + _Z**2 / trials
    centre = (rate + _Z**2 / (2 * trials)) / scale
    spread = _Z * np.sqrt(rate * (1 - rate) / trials + _Z**2 / (4 * trials**2)) / scale
    # the bounds at 0 and 1 are exact; rounding must not put them on the wrong side of the rate
    return np.minimum(np.maximum(centre - spread, 0.0), rate), np.maximum(
        np.minimum(centre + spread, 1.0), rate
    )


def wilson_of_mean(rates: Rates, trials: int) -> tuple[float, float]:
    """Wilson's interval of the mean over tasks, at the effective number of episodes.

    Tasks are strata: the difference between easy and hard ones is not uncertainty. The effective number of
    episodes is that of a single task with the same variance of its rate (Kish 1965; in Wilson's interval Korn
    and Graubard 1998, Franco et al. 2019). Each task's variance is taken at (successes + 1) / (trials + 2),
    because a task solved 10 times out of 10 is not certain. A bootstrap within tasks and the normal
    approximation treat it as certain, and then cover the truth in as few as a third of all cases.

    Args:
        rates: the success rate of each task, shape (tasks,).
        trials: independent episodes per task.
    """
    smooth = (rates * trials + 1) / (trials + 2)
    common = smooth.mean()
    effective = rates.size * trials * common * (1 - common) / (smooth * (1 - smooth)).mean()
    low, high = wilson(rates.mean(keepdims=True), float(effective))
    return float(low[0]), float(high[0])


def student(values: Rates) -> tuple[float, float]:
    """Student's interval of the mean of independent values, shape (n,), n at least 2."""
    spread = student_quantile(values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return float(values.mean() - spread), float(values.mean() + spread)
