"""Which settings are measured, in which order, and the table of what was measured: arithmetic only.

Only what changes the speed and not the science is varied: environments and the processes that step them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.recipe.processes import worker_processes

_MOST_COPIES = 4
"""Environments of each task that are tried; more have the policy act on older data than most runs have."""
_LEAST_TOP = 16
"""With few tasks, up to so many environments all the same."""
_AHEAD = 1.2
"""Environments that are so much faster than the loop cannot be what it waits for."""


@dataclass(frozen=True, order=True)
class Combination:
    """A number of environments and of the processes that step them."""

    num_envs: int
    workers: int


def environment_counts(tasks: int, own: int, replay_capacity: int, episode_steps: int) -> list[int]:
    """Numbers of environments to try: the run's own, then whole copies of the tasks, the nearest first.

    Args:
        tasks: of the recipe.
        own: what the run would take.
        replay_capacity: transitions, which must hold two episodes of each environment.
        episode_steps: length of an episode.
    """
    top = min(max(_MOST_COPIES * tasks, _LEAST_TOP), replay_capacity // (2 * episode_steps))
    doubled = (tasks << power for power in range(math.ceil(math.log2(max(top, 1) / tasks + 1)) + 1))
    counts = {own, *(count for count in doubled if count <= top)}
    # what is near to the run's own tells most while there is time; of two as near, the larger
    return sorted(counts, key=lambda count: (abs(math.log2(count / own)), -count))


def worker_counts(num_envs: int, processors: int, *, light: bool = False) -> list[int]:
    """Numbers of worker processes to try, the likeliest first.

    Args:
        num_envs: environments.
        processors: that may be used.
        light: a step may take so little that handing it to a process takes longer; not so on Meta-World.
    """
    usual = worker_processes(num_envs, processors)
    tries = [usual, min(processors, num_envs), math.ceil(usual / 2)]
    # one process for all is for small machines, and for small environments
    tries += [0, math.ceil(usual / 4)] if light else [0] if processors <= 4 or num_envs <= 2 else []
    return list(dict.fromkeys(tries))


def combinations(
    own: Combination, counts: Iterable[int], processors: int, *, light: bool = False
) -> list[Combination]:
    """All combinations, the run's own first, then the usual workers of each count, then the rest."""
    tries = {count: worker_counts(count, processors, light=light) for count in counts}
    longest = max((len(workers) for workers in tries.values()), default=0)
    ordered = [
        Combination(count, workers[place])
        for place in range(longest)
        for count, workers in tries.items()
        if place < len(workers)
    ]
    return list(dict.fromkeys([own, *ordered]))


def worth_a_run(
    own: Combination, rates: Mapping[Combination, float], loop_rate: float | None
) -> list[Combination]:
    """Combinations whose whole loop is to be measured, the most promising first; the run's own is not in it.

    The fastest environments come first; then the smallest combination that is still fast enough that the
    loop cannot be waiting for it; then the others by their speed.

    Args:
        own: the run's own combination, which has been measured.
        rates: environment steps a second of the environments alone.
        loop_rate: environment steps a second of the whole loop with the run's own; None if it failed.
    """
    by_speed = sorted(rates, key=lambda combination: -rates[combination])
    enough = [combination for combination in rates if loop_rate and rates[combination] >= _AHEAD * loop_rate]
    smallest = sorted(enough, key=lambda combination: (combination.workers, combination.num_envs))[:1]
    return [
        combination
        for combination in dict.fromkeys([*by_speed[:1], *smallest, *by_speed])
        if combination != own
    ]


_WHAT = {
    "loop": "whole loop",
    "envs": "environments alone",
    "updates": "updates alone",
    "evaluation": "evaluation beside it",
}
_HEADER = ("", "envs", "workers", "precision", "steps/s", "updates/s", "host", "device")


def line(row: Mapping[str, Any]) -> str:
    """Returns one measurement as it comes."""
    what = f"{_WHAT[row['kind']]}, {row['num_envs']} environments, {row['workers']} workers"
    if row["error"]:
        return f"[bench] {what}, {row['precision']}: {row['error']}"
    rates = [
        f"{row[key]:,.0f} {unit}"
        for key, unit in (
            ("env_steps_per_second", "steps/s"),
            ("steps_per_second", "steps/s"),
            ("updates_per_second", "updates/s"),
        )
        if row[key] is not None
    ]
    return f"[bench] {what}, {row['precision']}: {', '.join([*rates, _gib(row['host_bytes'])])}"


def table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the lines of a table, the fastest of each kind first."""
    cells = [_HEADER]
    for kind, name in _WHAT.items():
        measured = [row for row in rows if row["kind"] == kind and not row["error"]]
        measured.sort(key=lambda row: -(_speed(row) or 0.0))
        cells += [
            (
                name,
                str(row["num_envs"]),
                str(row["workers"]),
                row["precision"],
                _count(row["steps_per_second"] or row["env_steps_per_second"]),
                _count(row["updates_per_second"]),
                _gib(row["host_bytes"]),
                _gib(row["device_bytes"]),
            )
            for row in measured
        ]
    widths = [max(len(cell[column]) for cell in cells) for column in range(len(_HEADER))]
    return [
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(text.rjust(width) for text, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in cells
    ]


def _speed(row: Mapping[str, Any]) -> float | None:
    rate: float | None = row["steps_per_second"] or row["env_steps_per_second"] or row["updates_per_second"]
    return rate


def _count(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _gib(size: int | None) -> str:
    return "" if size is None else f"{size / 2**30:.2f} GiB"
