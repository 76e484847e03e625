"""How often the report's 95% interval of the interquartile mean holds the truth, simulated.

    python -m tests.benchmarks.coverage

Prints the table of docs/report.md, minutes long. A score is the logistic function of what its task, its seed
and chance add up to; a seed is one network for all tasks, so that its effect is the same on all of them. The
truth is the interquartile mean of very many seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from functools import cache, partial

from clusterkit.report.statistics import Interval, iqm, iqm_interval

Runs = Sequence[Sequence[float]]
Way = Callable[[Runs, int], Interval | None]
EFFECTS = (0.0, 0.5, 1.0)
"""Standard deviations of what a seed does to all tasks."""
_NOISE = 0.5
"""Standard deviation of chance; both are on the logistic scale."""
_RESAMPLES = 300
_TRIALS = 500

RECORDED: dict[tuple[int, int], dict[str, tuple[float, ...]]] = {
    (1, 10): {"whole seeds": (0.956, 0.968, 0.95), "seeds of each task": (0.91, 0.934, 0.922)},
    (10, 3): {"whole seeds": (0.756, 0.728, 0.73), "seeds of each task": (0.832, 0.524, 0.444)},
    (10, 5): {"whole seeds": (0.894, 0.914, 0.91), "seeds of each task": (0.876, 0.614, 0.51)},
    (10, 10): {"whole seeds": (0.936, 0.942, 0.926), "seeds of each task": (0.914, 0.642, 0.506)},
    (50, 10): {"whole seeds": (0.936, 0.954, 0.93), "seeds of each task": (0.916, 0.406, 0.196)},
}
"""By numbers of tasks and seeds, what was found for each way and effect."""


def whole_seeds(runs: Runs, seed: int) -> Interval | None:
    """The interval of the report: draws whole runs."""
    return iqm_interval(runs, seed=seed, resamples=_RESAMPLES)


def within_tasks(runs: Runs, seed: int) -> Interval:
    """The stratified bootstrap of Agarwal et al. 2021, for tasks that have runs of their own."""
    generator = random.Random(seed)
    tasks = [*zip(*runs, strict=True)]
    found = sorted(
        iqm([score for scores in tasks for score in generator.choices(scores, k=len(scores))])
        for _ in range(_RESAMPLES)
    )
    edge = round(0.025 * _RESAMPLES)
    return Interval(found[edge], found[-edge - 1])


def covered(way: Way, *, tasks: int, seeds: int, effect: float, trials: int) -> float:
    """Returns the share of trials whose interval holds the truth."""
    truth = _truth(tasks, effect)
    generator = random.Random(f"{tasks} {seeds} {effect}")
    held = 0
    for trial in range(trials):
        interval = way([_run(generator, tasks, effect) for _ in range(seeds)], trial)
        assert interval is not None
        held += interval.low <= truth <= interval.high
    return held / trials


def table(found: dict[tuple[int, int], dict[str, tuple[float, ...]]]) -> str:
    """Returns the table for docs/report.md, of the report's own way."""
    effects = " | ".join(f"effect {effect:g}" for effect in EFFECTS)
    lines = [f"| tasks | seeds | {effects} |", f"|---:|---:|{'---:|' * len(EFFECTS)}"]
    for (tasks, seeds), ways in found.items():
        cells = " | ".join(f"{share:.2f}" for share in ways["whole seeds"])
        lines.append(f"| {tasks} | {seeds} | {cells} |")
    return "\n".join(lines) + "\n"


def _run(generator: random.Random, tasks: int, effect: float) -> list[float]:
    own = generator.gauss(0.0, effect)
    return [
        1 / (1 + math.exp(-(4 * task / max(tasks - 1, 1) - 2 + own + generator.gauss(0.0, _NOISE))))
        for task in range(tasks)
    ]


@cache
def _truth(tasks: int, effect: float) -> float:
    generator = random.Random(1)
    return iqm([score for _ in range(200_000 // tasks) for score in _run(generator, tasks, effect)])


def main() -> None:
    """Print the table, and what to record for it."""
    found = {}
    for tasks, seeds in ((1, 10), (10, 3), (10, 5), (10, 10), (50, 10)):
        share = partial(covered, tasks=tasks, seeds=seeds, trials=_TRIALS)
        found[tasks, seeds] = {
            name: tuple(round(share(way, effect=effect), 3) for effect in EFFECTS)
            for name, way in (("whole seeds", whole_seeds), ("seeds of each task", within_tasks))
        }
        print(found, flush=True)
    print(table(found))


if __name__ == "__main__":
    main()
