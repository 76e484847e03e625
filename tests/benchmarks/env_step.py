"""One Meta-World environment: ours against the official package's, on one core, to the same bits.

`ratio_step`: mean time of a step over MT10, random actions. `ratio_step_scripted`: with the scripted
policies' actions, which touch things. `ratio_reset`: a reset to a goal played before in this process, as
all but the first 50 of a task are; `ratio_reset_first`: to a new one. `share_of_limit`: of our step's time
(random), what the official physics alone takes, five steps and one forward pass; `share_of_own_limit`: what
our physics takes, which marks nothing for a viewer. Neither leaves out, as our step does, what is still
there from the step before: 6 %. `mt50_ready_s`: a new process until MT50's 50 environments in two workers
show their first observations, self-check included. Blocks are interleaved, the median block of a task
counts; with `--full`, all 50 tasks one by one.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS, MT10_V3
from metaworld.policies import ENV_POLICY_MAP

from tests.benchmarks._physics import PurePhysics
from tests.benchmarks._report import arguments, report
from trainer.envs.fast_metaworld import fast_class
from trainer.envs.official import STANDARD, goal_vectors, official_task, way_depends_on_goal

BLOCK = 100
READY_OFFICIAL = """
import gymnasium, metaworld
if __name__ == "__main__":
    envs = gymnasium.make_vec("Meta-World/MT50", vector_strategy="async", seed=42)
    assert envs.reset()[0].any(1).all()
    envs.close()
"""
READY = """
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
import numpy as np
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.schedule import Schedule
from trainer.envs.vector import VectorEnv
if __name__ == "__main__":
    factory = MetaworldFactory(tuple(ALL_V3_ENVIRONMENTS))
    with VectorEnv(factory, 50, workers=2) as vector:
        vector.reset(Schedule(50, 50, 500, 50, np.random.default_rng(0)).first())
        assert np.isfinite(vector.observation).all() and vector.observation.any(1).all()
"""


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


class Task:
    """Both environments of one task and what was measured: seconds per call, by name."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.ours, self.official = fast_class(name)(), ALL_V3_ENVIRONMENTS[name]()
        goals = goal_vectors(name, **STANDARD)
        self.ours.way_depends_on_goal = way_depends_on_goal(name, goals)
        self._goals = [official_task(name, goal) for goal in goals]
        self._policy = ENV_POLICY_MAP[name]()
        self._times: dict[str, list[float]] = {}

    def __getitem__(self, what: str) -> float:
        return statistics.median(self._times[what])

    def measure(self, blocks: int, rng: np.random.Generator) -> None:
        """Runs all measurements, interleaved."""
        for block in range(blocks):
            self._resets("first", block)
            random = rng.uniform(-1, 1, (BLOCK, 4)).astype(np.float32)
            self._steps("step", random)
            physics = PurePhysics(self._name, random)
            for what, official in (("limit", True), ("own limit", False)):
                physics.rewind(official=official)
                self._clock(what, lambda physics=physics: [physics.step(n) for n in range(BLOCK)], BLOCK)
            self._resets("again", block)
            self._steps("scripted", self._scripted(block))

    def _resets(self, what: str, goal: int) -> None:
        for side, env in (("ours", self.ours), ("official", self.official)):
            env.set_task(self._goals[goal % 50])
            self._clock(f"{side} {what}", env.reset)

    def _steps(self, what: str, actions: np.ndarray) -> None:
        for side, env in (("ours", self.ours), ("official", self.official)):
            self._clock(f"{side} {what}", lambda env=env: [env.step(a) for a in actions], len(actions))

    def _scripted(self, goal: int) -> np.ndarray:
        """The actions of the scripted policy on the goal, whose episode is then started again."""
        observation = self.ours.reset()[0]
        actions = []
        for _ in range(BLOCK):
            wanted = self._policy.get_action(observation.copy())
            actions.append(np.clip(wanted, -1, 1).astype(np.float32))
            observation = self.ours.step(actions[-1])[0]
        self._resets("again", goal)
        return np.array(actions)

    def _clock(self, what: str, work: Callable[[], Any], calls: int = 1) -> None:
        self._times.setdefault(what, []).append(seconds(work) / calls)


def main() -> None:
    """Run and report."""
    chosen = arguments(__doc__, full="all 50 tasks one by one")
    warnings.simplefilter("ignore")  # some scripted policies say that they ask for more than 1
    rng = np.random.default_rng(0)
    blocks = 5 if chosen.quick else 11
    tasks = {}
    for name in ALL_V3_ENVIRONMENTS if chosen.full else MT10_V3:
        tasks[name] = Task(name)
        tasks[name].measure(blocks, rng)

    def ready(program: str, repetitions: int) -> float:
        return min(
            seconds(lambda: subprocess.run([sys.executable, "-c", program], check=True))
            for _ in range(repetitions)
        )

    def mean(what: str) -> float:
        return statistics.fmean(task[what] for task in tasks.values())

    rows = []
    if chosen.full:
        for name, task in tasks.items():
            rows.append(
                (name, "ours", task["ours step"] * 1e6, "official", task["official step"] * 1e6, "us")
            )
    for text, what in (("step, random", "step"), ("step, scripted", "scripted")):
        rows.append(
            (text, "ours", mean(f"ours {what}") * 1e6, "official", mean(f"official {what}") * 1e6, "us")
        )
    for alone, what in (("official physics only", "limit"), ("our physics only", "own limit")):
        rows.append(("step, random", "ours", mean("ours step") * 1e6, alone, mean(what) * 1e6, "us"))
    for text, what in (("reset, new goal", "first"), ("reset, known goal", "again")):
        rows.append(
            (text, "ours", mean(f"ours {what}") * 1e3, "official", mean(f"official {what}") * 1e3, "ms")
        )

    metrics = {"mt50_ready_s": ready(READY, 2)}
    if not chosen.quick:
        official = ready(READY_OFFICIAL, 1)
        rows.append(("MT50 ready", "ours", metrics["mt50_ready_s"], "official", official, "s"))
        metrics["ratio_mt50_ready"] = official / metrics["mt50_ready_s"]

    def ratio(what: str) -> float:
        return mean(f"official {what}") / mean(f"ours {what}")

    report(
        "env_step",
        rows,
        {
            "ratio_step": ratio("step"),
            "ratio_step_scripted": ratio("scripted"),
            "ratio_reset": ratio("again"),
            "ratio_reset_first": ratio("first"),
            "share_of_limit": mean("limit") / mean("ours step"),
            "share_of_own_limit": mean("own limit") / mean("ours step"),
            **metrics,
        },
    )


if __name__ == "__main__":
    main()
