"""Evaluation: distinct goals, environments of its own, the deterministic policy, success at any step.

The goals of a task are every k-th of its list and are dealt to the environments in advance. Counting the
first episodes that happen to end would favour short, successful ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trainer.arguments import Parser, at_least
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Command, Orders
from trainer.envs.vector import VectorEnv
from trainer.processors import usable_processors

Act = Callable[[npt.NDArray[np.float32], npt.NDArray[np.int32]], npt.NDArray[np.float32]]
"""Maps observations (n, observation_dim) and task ids (n,) to actions (n, action_dim)."""

MAX_STEPS = 500
_MAX_ENVS = 40
"""Environments kept for evaluation, unless there are more tasks; each takes about 20 MB."""


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found.

    Attributes:
        tasks: task names.
        success: bool (tasks, episodes), solved at any step.
        returns: float (tasks, episodes), the rewards up to the episode's end; a solved episode ends at once.
    """

    tasks: Sequence[str]
    success: npt.NDArray[np.bool_]
    returns: npt.NDArray[np.float64]

    def metrics(self) -> dict[str, float | int]:
        """Returns the numbers under the names of `metrics.jsonl`."""
        success, returns = self.success.mean(1), self.returns.mean(1)
        rows: dict[str, float | int] = {"success/mean": float(success.mean())}
        rows |= {f"success/{task}": float(value) for task, value in zip(self.tasks, success, strict=True)}
        rows["return/mean"] = float(returns.mean())
        rows |= {f"return/{task}": float(value) for task, value in zip(self.tasks, returns, strict=True)}
        return rows | {"episodes": self.success.shape[1]}


class Evaluator:
    """Plays episodes in environments of its own.

    Args:
        factory: makes the environments.
        episodes: most episodes per task that `run` will be asked for.
        workers: worker processes, 0 for none.
        max_steps: length of an episode.
    """

    def __init__(
        self,
        factory: EnvFactory,
        episodes: int,
        *,
        workers: int = 0,
        max_steps: int = MAX_STEPS,
    ) -> None:
        self._names = tuple(factory.tasks)
        self._max_steps = max_steps
        count = len(self._names)
        self._copies = max(1, min(episodes, _MAX_ENVS // count))
        self._task = np.tile(np.arange(count, dtype=np.int32), self._copies)
        self._vector = VectorEnv(factory, self._task.size, workers=workers)

    def run(
        self, act: Act, goals: npt.NDArray[np.int32], interrupted: Callable[[], bool] = lambda: False
    ) -> Evaluation | None:
        """Plays an episode of each task for each goal.

        Args:
            act: the policy.
            goals: indices into the goal list, see `spread_goals`.
            interrupted: asked at every step; the evaluation is given up if true.

        Returns:
            The result, or None if interrupted.

        Raises:
            WorkerError: a worker died or hangs.
        """
        task, episodes = self._task, len(goals)
        success = np.zeros((len(self._names), episodes), np.bool_)
        returns = np.zeros((len(self._names), episodes))
        episode = np.arange(task.size) // len(self._names)
        active = episode < episodes
        elapsed = np.zeros(task.size, np.int64)
        self._reset(active, episode, goals)
        while active.any():
            if interrupted():
                return None
            command = np.where(active, Command.STEP, Command.IDLE).astype(np.int8)
            # always all rows: a row's result may depend on the size of the batch in its last bit
            action = act(self._vector.observation, task)
            self._vector.start(Orders(command, task, np.zeros_like(task)), action)
            outcome = self._vector.wait()
            elapsed += active
            playing = np.flatnonzero(active)
            returns[task[playing], episode[playing]] += outcome.reward[playing]
            success[task[playing], episode[playing]] |= outcome.success[playing]
            ended = active & (outcome.success | (elapsed >= self._max_steps))
            episode[ended] += self._copies
            elapsed[ended] = 0
            active = episode < episodes
            self._reset(ended & active, episode, goals)
        return Evaluation(self._names, success, returns)

    def close(self) -> None:
        """Ends the workers."""
        self._vector.close()

    def _reset(
        self, which: npt.NDArray[np.bool_], episode: npt.NDArray[np.int_], goals: npt.NDArray[np.int32]
    ) -> None:
        if which.any():
            command = np.where(which, Command.RESET, Command.IDLE).astype(np.int8)
            self._vector.reset(Orders(command, self._task, goals[episode % goals.size]))


def spread_goals(episodes: int, distinct: int, goals_per_task: int) -> npt.NDArray[np.int32]:
    """Returns each episode's goal (episodes,): every k-th of the list, `distinct` of them in turn."""
    count = min(episodes, distinct, goals_per_task)
    picked = np.arange(count) * goals_per_task // count
    return picked[np.arange(episodes) % count].astype(np.int32)


def main(argv: Sequence[str]) -> int:
    """`python -m trainer evaluate`: prints a table of success rates; returns the exit code.

    Raises:
        UsageError: an argument is wrong.
        CheckpointError: there is no usable model at the path.
    """
    parser = Parser(prog="python -m trainer evaluate", description="Success rates of a trained policy.")
    parser.add_argument("checkpoint", type=Path, help="a run, a checkpoint or a final_model.pt")
    parser.add_argument("--episodes", type=at_least(1), default=50, metavar="N", help="per task (50)")
    parser.add_argument("--workers", type=at_least(0), metavar="N", help="processes (all processors)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.read(argv)

    # these take their time to import, which --help should not
    from trainer.device import configure
    from trainer.envs.metaworld import MetaworldFactory
    from trainer.model import load_model

    model = load_model(given.checkpoint, configure("cpu", threads=1))
    goals = model.recipe["values"]["goals_per_task"]
    evaluator = Evaluator(
        MetaworldFactory(model.tasks, goals_per_task=goals),
        given.episodes,
        workers=usable_processors() if given.workers is None else given.workers,
    )
    try:
        result = evaluator.run(
            partial(model.policy.act, greedy=True), spread_goals(given.episodes, goals, goals)
        )
    finally:
        evaluator.close()
    assert result is not None, "nobody interrupts"
    if given.json:
        text = json.dumps({"checkpoint": str(model.path), "step": model.step, **result.metrics()})
    else:
        text = table(result)
    sys.stdout.write(f"{text}\n")
    return 0


def table(result: Evaluation) -> str:
    """Returns success and return of each task and their mean, aligned."""
    metrics = result.metrics()
    width = max(len(name) for name in ("task", *result.tasks))
    rows = [f"{'task':<{width}}  success  return"]
    for name in (*result.tasks, "mean"):
        rows.append(f"{name:<{width}}  {metrics[f'success/{name}']:>7.1%}  {metrics[f'return/{name}']:>6.1f}")
    return "\n".join(rows)
