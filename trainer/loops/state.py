"""The state of a run besides its networks and replay: counters, environments, episodes to be logged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_PHYSICS = ("gymnasium", "metaworld", "mujoco")
"""The packages whose versions decide whether a state of the environments can be taken up again."""


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint to go on from.

    Attributes:
        path: its folder.
        parts: what it holds.
        replay: whether the rows of its replay are here too; without them the policy fills it again.
    """

    path: Path
    parts: dict[str, Any]
    replay: bool = True


@dataclass
class RunCounters:
    """The counters of a run.

    Attributes:
        learning_starts: environment steps from which the learner may learn.
        step: environment steps so far.
        updates: updates so far.
        credit: environment steps not yet turned into updates.
        normalized: whether the observation statistics are settled.
        aim: `stop_at` and `total_steps`; with others, what has been reached does not count.
        judging: whether the last evaluation is still to be compared with `stop_at`.
        judged: updates before the last one that was compared.
        reached: evaluations in a row that have reached `stop_at`.
    """

    learning_starts: int
    step: int = 0
    updates: int = 0
    credit: float = 0.0
    normalized: bool = False
    aim: Sequence[float | None] = ()
    judging: bool = False
    judged: int = -1
    reached: int = 0

    def aim_at(self, stop_at: float | None, total_steps: int) -> None:
        """Takes up the settings that decide when the run is over."""
        aim = [stop_at, total_steps]
        if self.aim and [*self.aim] != aim:
            self.judging, self.reached = False, 0
        self.aim = aim

    def as_dict(self) -> dict[str, Any]:
        """Returns the counters as plain values."""
        return asdict(self)


def stored_environments(schedule: Mapping[str, Any], states: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the running episodes and their plan, with the versions they belong to."""
    return {"schedule": dict(schedule), "states": states, "versions": _versions()}


def usable_environments(
    stored: Mapping[str, Any] | None, num_envs: int, say: Callable[[str], None]
) -> Mapping[str, Any] | None:
    """Returns the stored environments if their episodes can go on; else says why not and returns None."""
    if stored is None:
        reason = "the environments were lost when the checkpoint was written"
    elif len(stored["states"]) != num_envs:
        reason = f"the checkpoint has {len(stored['states'])} environments, this run has {num_envs}"
    elif stored["versions"] != _versions():
        theirs = ", ".join(f"{name} {version}" for name, version in stored["versions"].items())
        reason = f"the checkpoint's environments are of {theirs}"
    elif lost := [state["env"]["lost"] for state in stored["states"] if "lost" in state["env"]]:
        reason = f"the state of these environments cannot be put back ({lost[0]})"
    else:
        return stored
    say(f"{reason}: new episodes are started")
    return None


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in _PHYSICS}


Episode = tuple[int, float, bool, int]
"""Task, return, whether it was solved, and steps of an episode that has ended."""


class EpisodeStatistics:
    """Adds up running episodes and keeps those that ended since the last `drain`.

    Args:
        num_envs: environments.
        tasks: task names.
        success: whether success means anything in these environments.
        lengths: whether episodes differ in length, which is then recorded too.
    """

    def __init__(
        self, num_envs: int, tasks: Sequence[str], *, success: bool = True, lengths: bool = False
    ) -> None:
        self._lengths = lengths
        self._tasks = tasks
        self._success = success
        self._return = np.zeros(num_envs)
        self._solved = np.zeros(num_envs, np.bool_)
        self._steps = np.zeros(num_envs, np.int64)
        self._ended: list[Episode] = []

    def add(
        self,
        task: npt.NDArray[np.integer[Any]],
        reward: npt.NDArray[np.float32],
        success: npt.NDArray[np.bool_],
        ended: npt.NDArray[np.bool_],
    ) -> None:
        """Takes one vector step; all arrays have the shape (num_envs,)."""
        self._return += reward
        self._solved |= success
        self._steps += 1
        if not ended.any():
            return
        for env in np.flatnonzero(ended):
            self._ended.append(
                (int(task[env]), float(self._return[env]), bool(self._solved[env]), int(self._steps[env]))
            )
        self._return[ended] = 0.0
        self._solved[ended] = False
        self._steps[ended] = 0

    def state_dict(self) -> dict[str, Any]:
        """Returns the running episodes and those not yet drained, as plain values."""
        return {
            "return": self._return.tolist(),
            "solved": self._solved.tolist(),
            "steps": self._steps.tolist(),
            "ended": list(self._ended),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, for as many environments."""
        self._return[:] = state["return"]
        self._solved[:] = state["solved"]
        self._steps[:] = state["steps"]
        self._ended = [*state["ended"]]

    def take(self) -> list[Episode]:
        """Returns the ended episodes and keeps them no longer."""
        ended, self._ended = self._ended, []
        return ended

    def put(self, ended: Iterable[Episode]) -> None:
        """Takes in ended episodes of another rank."""
        self._ended += ended

    def drain(self) -> dict[str, float]:
        """Returns `return/<task>`, `return/mean`, `train_success/<task>` and, if asked for, `length/<task>`.

        They are those of the episodes that ended. The mean is over tasks, and there only when every task has
        ended an episode.
        """
        row: dict[str, float] = {}
        means = []
        for index, name in enumerate(self._tasks):
            episodes = [episode for task, *episode in self._ended if task == index]
            if episodes:
                returns, solved, lengths = zip(*episodes, strict=True)
                means.append(float(np.mean(returns)))
                row[f"return/{name}"] = means[-1]
                if self._success:
                    row[f"train_success/{name}"] = float(np.mean(solved))
                if self._lengths:
                    row[f"length/{name}"] = float(np.mean(lengths))
        if len(means) == len(self._tasks):
            row["return/mean"] = float(np.mean(means))
        self._ended.clear()
        return row
