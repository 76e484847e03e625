"""Acting on the host beside a GPU: the lean form of a policy against the policy's own `sample`.

The policies of guide-mt10 and td3-mt10 in one thread, with 10 and 30 environments: from arrays to an array,
the noise included, and what each side does when new weights have come. The sides take turns, and the median
of the ratios of neighbours counts, in the thread's own time, for other programs slow down both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

from tests.benchmarks._learners import ACTION, OBSERVATION, TASKS
from tests.benchmarks._report import Row, arguments, report
from trainer import recipe as recipes
from trainer.envs.spaces import ActionSpace
from trainer.nn.policy import ExploringActor

RECIPES = ("guide-mt10", "td3-mt10")
SIZES = (10, 30)
CALLS = 100
"""Actions in a round."""


def make_policy(name: str) -> ExploringActor:
    """Returns a recipe's policy, on ten tasks, in no state to learn."""
    recipe = recipes.load(name)
    space = ActionSpace("box", (-1.0,) * ACTION, (1.0,) * ACTION)
    torch.manual_seed(0)
    policy: ExploringActor = recipe.entry.policy(recipe.values, OBSERVATION, space, TASKS)
    return policy.requires_grad_(False)


def sides(policy: ExploringActor, envs: int) -> dict[str, Callable[[], object]]:
    """Returns what takes up new weights and acts, for both sides."""
    lean = policy.lean(envs)
    assert lean is not None
    observation = np.random.default_rng(0).standard_normal((envs, OBSERVATION), np.float32)
    task = np.arange(envs, dtype=np.int32) % TASKS

    def ours() -> object:
        lean.refresh()
        return lean(observation, task, policy.draw_noise(envs).numpy())

    def own() -> object:
        seen, of = torch.from_numpy(observation), torch.from_numpy(task).long()
        return policy.sample(seen, of, policy.draw_noise(envs)).numpy()

    return {"ours": ours, "sample": own}


def rounds(both: dict[str, Callable[[], object]], number: int) -> dict[str, list[float]]:
    """Microseconds of a call of each side, in turn, after two rounds that do not count."""
    found: dict[str, list[float]] = {side: [] for side in both}
    for turn in range(number + 2):
        for side, work in both.items():
            begun = time.thread_time()
            for _ in range(CALLS):
                work()
            if turn >= 2:
                found[side].append((time.thread_time() - begun) / CALLS * 1e6)
    return found


def main() -> None:
    """Measures and reports."""
    quick = arguments(__doc__).quick
    torch.set_num_threads(1)
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for name in RECIPES:
        policy = make_policy(name)
        for envs in SIZES:
            found = rounds(sides(policy, envs), 20 if quick else 100)
            ours, own = (statistics.median(times) for times in found.values())
            rows.append((f"{name}, {envs} environments", "lean", ours, "sample", own, "us"))
            pairs = zip(found["sample"], found["ours"], strict=True)
            metrics[f"ratio_{name}_{envs}"] = statistics.median(slow / fast for slow, fast in pairs)
    report("acting", rows, metrics)


if __name__ == "__main__":
    main()
