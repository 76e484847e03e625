"""The state of a run besides its networks and its replay: counters and environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

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
