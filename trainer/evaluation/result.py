"""What an evaluation found, and the numbers to report of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trainer.evaluation.intervals import wilson, wilson_of_mean


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        tasks: task names.
        goals: int (episodes,), the goal that each task's episode was played with.
        success: bool (tasks, episodes), solved at any step.
        returns: float (tasks, episodes), the rewards up to the episode's end; a solved episode ends at once.
    """

    tasks: Sequence[str]
    goals: npt.NDArray[np.int32]
    success: npt.NDArray[np.bool_]
    returns: npt.NDArray[np.float64]

    def metrics(self) -> dict[str, float | int]:
        """Returns the numbers under the names of `metrics.jsonl`; `success_low` and `_high` span 95%."""
        # policy and environment are deterministic: to play a goal again tells nothing new
        trials = int(np.unique(self.goals).size)
        success, returns = self.success.mean(1), self.returns.mean(1)
        low, high = wilson(success, trials)
        mean_low, mean_high = wilson_of_mean(success, trials)
        rows: dict[str, float | int] = {}
        for name, mean, values in (
            ("success", success.mean(), success),
            ("success_low", mean_low, low),
            ("success_high", mean_high, high),
            ("return", returns.mean(), returns),
        ):
            rows[f"{name}/mean"] = float(mean)
            rows |= {f"{name}/{task}": float(value) for task, value in zip(self.tasks, values, strict=True)}
        return rows | {"episodes": self.success.shape[1]}


def table(result: Evaluation) -> str:
    """Returns success with its interval and return of each task and of their mean, aligned."""
    metrics = result.metrics()
    width = max(len(name) for name in ("task", *result.tasks))
    rows = [f"{'task':<{width}}  success    95% interval  return"]
    for name in (*result.tasks, "mean"):
        success, low, high, mean_return = (
            metrics[f"{key}/{name}"] for key in ("success", "success_low", "success_high", "return")
        )
        interval = f"{low:.1%} - {high:.1%}"
        rows.append(f"{name:<{width}}  {success:>7.1%}  {interval:>14}  {mean_return:>6.1f}")
    return "\n".join(rows)
