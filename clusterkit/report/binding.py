"""A run's bottleneck, and settings that would make it faster. Pure.

While the environments step, the trainer learns; `env` is the wait that is left over after that. On a GPU
the host runs ahead, so the wait for the GPU shows in `learn` or in `act`: there, utilisation decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clusterkit.report.measured import Measured, median_rate, share
from clusterkit.units import beside

NAMES = {
    "learn": "the learner",
    "act": "acting",
    "env": "the physics",
    "evaluate": "evaluation",
    "checkpoint": "I/O of checkpoints",
    "other": "starting and the rest",
}
_BUSY = 0.7
"""Utilisation from which the GPU is the bottleneck."""
_WORTH = 1.05
"""Changes that make a run less than 5% faster are not mentioned."""


@dataclass(frozen=True)
class Binding:
    """The part of the loop that takes most of the time."""

    part: str
    """A key of `NAMES`."""
    sentence: str


@dataclass(frozen=True)
class Change:
    """A setting that would make the next run faster."""

    setting: str
    """The setting to write."""
    why: str
    factor: float
    """The speed-up: an upper bound, or measured."""
    measured: bool = False
    """Whether another run shows it; otherwise it follows from the time split."""

    @property
    def gain(self) -> str:
        """The speed-up in words."""
        return f"{'' if self.measured else 'at most '}{self.factor:.2f} times as fast"


def what_binds(measured: Measured) -> Binding | None:
    """Returns the part that takes most of the time; None for a program that does not time its loop."""
    parts = measured.shares
    if not parts:
        return None
    part = max(parts, key=lambda name: parts[name])
    if measured.gpu is not None and measured.gpu >= _BUSY and parts["learn"] + parts["act"] > parts["env"]:
        part = "learn"
    text = f"{share(parts['learn'])} of the loop goes into updates, {share(parts['act'])} into acting, "
    text += f"{share(parts['env'])} into waiting for environments"
    text += "".join(
        f", {share(parts[p])} into {NAMES[p]}" for p in ("evaluate", "checkpoint") if parts[p] >= 0.02
    )
    used = f"; the GPU is {share(measured.gpu)} busy" if measured.gpu is not None else ""
    return Binding(part, f"{NAMES[part]} binds: {text}{used}")


def faster(measured: Measured, recipe: Mapping[str, Any]) -> list[Change]:
    """Settings that would help, the best first; changes to what is learned are marked.

    Args:
        measured: a run's.
        recipe: the recipe's values.
    """
    if not measured.shares:
        return []
    changes = [*_physics(measured, recipe), *_learner(measured, recipe), *_pauses(measured)]
    worth = [change for change in changes if change.factor >= _WORTH]
    return sorted(worth, key=lambda change: -change.factor)


def compared(mine: Sequence[Measured], others: Mapping[str, Sequence[Measured]], label: str) -> list[Change]:
    """Compares groups of runs: which other num_envs, precision or CPU count ran faster.

    A group counts as faster if its slowest run is faster than this group's fastest.

    Args:
        mine: runs of one group.
        others: runs of each other group with the same learning task.
        label: this group's name.
    """
    changes = []
    for name, theirs in others.items():
        different = _settings_apart(mine[0], theirs[0])
        slow, quick = median_rate(mine), median_rate(theirs)
        fastest = max((measured.steps_per_second or 0.0 for measured in mine), default=0.0)
        slowest = min((measured.steps_per_second or 0.0 for measured in theirs), default=0.0)
        if not different or not slow or not quick or slowest <= fastest:
            continue
        fast, mine_fast = beside([quick, slow])
        why = f"{name} made {fast} steps/s, {label} {mine_fast}"
        if theirs[0].device != mine[0].device:
            why += f", on {theirs[0].device} instead of {mine[0].device}"
        changes.append(Change(", ".join(different), why, quick / slow, measured=True))
    return [change for change in changes if change.factor >= _WORTH]


def _settings_apart(ours: Measured, theirs: Measured) -> list[str]:
    """Returns the hardware settings that are known for both and differ."""
    pairs = (
        ("num_envs", ours.num_envs, theirs.num_envs),
        ("precision", ours.precision, theirs.precision),
        ("cpus", ours.processors, theirs.processors),
    )
    return [
        f'{key} = "{theirs}"' if isinstance(theirs, str) else f"{key} = {theirs}"
        for key, ours, theirs in pairs
        if ours is not None and theirs is not None and ours != theirs
    ]


def _physics(measured: Measured, recipe: Mapping[str, Any]) -> list[Change]:
    envs, processors = measured.num_envs, measured.processors
    waiting, acting = measured.shares["env"], measured.shares["act"]
    if envs is None:
        return []
    if (measured.gpu or 0.0) >= _BUSY:
        acting = 0.0  # that is the wait for the updates
    changes = []
    if processors is None or envs > processors - 1:
        more = f"cpus = {2 * processors}" if processors else "more cpus"
        workers = max(1, processors - 1) if processors else 0
        why = f"{envs} environments share {workers or 'few'} worker{'s' if workers != 1 else ''}"
        changes.append(
            Change(more, f"{why}; twice as many halve the wait for physics at most", _halved(waiting))
        )
        gain = acting
    else:
        gain = acting + waiting  # a worker each: more environments use the same wait for more steps
    tasks = recipe.get("tasks")
    sizes = {"MT10": 10, "MT25": 25, "MT50": 50}
    count = sum(sizes.get(str(task), 1) for task in tasks) if isinstance(tasks, list) and tasks else 1
    wanted = -(-2 * envs // count) * count
    why = "each action and each wait then serves twice as many environments"
    why += f" (a multiple of the {count} tasks)" if count > 1 else ""
    why += "; the recipe keeps its updates per environment step"
    changes.append(Change(f"num_envs = {wanted}", why, _halved(gain)))
    return changes


def _learner(measured: Measured, recipe: Mapping[str, Any]) -> list[Change]:
    learning = measured.shares["learn"] + (measured.shares["act"] if (measured.gpu or 0) >= _BUSY else 0.0)
    on_gpu = measured.capability is not None
    per = recipe.get("env_steps_per_update")
    per = per if isinstance(per, float) or (isinstance(per, int) and abs(per) < 1e9) else None
    rule = f"an update every {per:g} steps is the recipe's, whatever num_envs is" if per else "updates bind"
    if on_gpu and measured.gpu is not None and measured.gpu < _BUSY:
        return []  # kernels too small to fill the GPU: rounding them saves nothing
    if on_gpu and (measured.capability or 0) < 8.0:
        return []
    better = {"fp32": "tf32" if on_gpu else "bf16", "tf32": "bf16" if on_gpu else "", "bf16": ""}
    wanted = better.get(measured.precision or "", "")
    if not wanted:
        return []
    why = f"{rule}, so only cheaper updates help; half as long would be this much"
    why += "" if on_gpu else "; on a CPU only with bf16 units (AVX512_BF16, AMX): try it with a short run"
    return [Change(f'precision = "{wanted}"', why, _halved(learning))]


def _pauses(measured: Measured) -> list[Change]:
    return [
        Change(
            "eval_every twice as long, or fewer eval_episodes",
            f"training waits for evaluations {share(measured.shares['evaluate'])} of the time",
            _halved(measured.shares["evaluate"]),
        ),
        Change(
            "checkpoint_every twice as long",
            f"training waits for checkpoints {share(measured.shares['checkpoint'])} of the time",
            _halved(measured.shares["checkpoint"]),
        ),
    ]


def _halved(part: float) -> float:
    """Returns the speed-up of the whole when one part's time is halved (Amdahl 1967)."""
    return 1 / (1 - part / 2)
