"""Whole training runs against stable-baselines3's SAC on AsyncVectorEnv's like: environment steps a second.

Both learn the tasks of a recipe with its networks, batch and ratio of updates to steps, on the CPU, one
update each vector step: `local-demo` on 16 environments, and `guide-mt10` on 10, whose critics are 3x1024.
Ours is `python -m trainer train` as it is, with everything it does on the way; the peer is SAC with
SubprocVecEnv and the official environments, their one-hot ids appended, on the number of threads that suits
it best here. What counts is the rate while learning, evaluation and warm-up left out. `ratio_end_to_end` and
`ratio_end_to_end_guide` are ours over the peer's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from tests.benchmarks._report import Row, arguments, report
from trainer import recipe as recipes
from trainer.envs.official import goal_vectors, official_task


@dataclass(frozen=True)
class Case:
    """A recipe with its environments, and the steps of both sides; `warmup` replaces the recipe's."""

    recipe: str
    num_envs: int
    warmup: int
    ours: int
    peer: int
    logged: int

    @property
    def values(self) -> dict[str, Any]:
        """The recipe's, with the warm-up of the case."""
        return {**recipes.load(self.recipe).values, "warmup_steps": self.warmup}

    @property
    def tasks(self) -> tuple[str, ...]:
        """Full names."""
        return recipes.task_names(self.values["tasks"])


CASES = {
    "end_to_end": Case("local-demo", 16, 4000, 60_000, 20_000, 2000),
    "end_to_end_guide": Case("guide-mt10", 10, 500, 3000, 1000, 100),
}
QUICK = {
    "end_to_end": Case("local-demo", 16, 4000, 24_000, 3000, 2000),
    "end_to_end_guide": Case("guide-mt10", 10, 500, 1500, 500, 100),
}


class Official(gymnasium.Wrapper):
    """The official environment of a task, cut and one-hot as the recipe says, with a goal of the 50."""

    def __init__(self, case: Case, number: int) -> None:
        tasks = case.tasks
        task = tasks[number % len(tasks)]
        super().__init__(ALL_V3_ENVIRONMENTS[task]())
        self._goals = [official_task(task, goal) for goal in goal_vectors(task, 50, 42)]
        self._id = np.eye(len(tasks), dtype=np.float32)[number % len(tasks)]
        self._rng = np.random.default_rng(0)
        self._steps = case.values["episode_steps"]
        size = 39 + len(tasks)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, **_):
        self.env.set_task(self._goals[self._rng.integers(50)])
        observation, info = self.env.reset()
        self._left = self._steps
        return self._show(observation), info

    def step(self, action):
        observation, reward, _, _, info = self.env.step(action)
        self._left -= 1
        return self._show(observation), reward, False, self._left == 0, info

    def _show(self, observation):
        return np.concatenate([observation, self._id]).astype(np.float32)


def ours(case: Case) -> float:
    """The median rate of a run's log lines, in steps a second."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["--recipe", case.recipe, "--num-envs", str(case.num_envs), "--total-steps", str(case.ours)]
        argv += ["--set", f"warmup_steps={case.warmup}", "--unlock", "warmup_steps", "--device", "cpu"]
        argv += ["--run-dir", folder, "--eval-every", "0", "--wandb", "disabled"]
        argv += ["--log-every", str(case.logged)]
        subprocess.run(
            [sys.executable, "-m", "trainer", "train", *argv], check=True, stdout=subprocess.DEVNULL
        )
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    learning = case.warmup + 2 * case.logged
    return statistics.median(
        line["steps_per_second"] for line in lines if line["kind"] == "train" and line["step"] > learning
    )


def peer(case: Case, threads: int) -> float:
    """The rate of stable-baselines3 after its warm-up, in steps a second."""
    script = f"from tests.benchmarks.end_to_end import *; print(peer_here({case!r}, {threads}))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(answer.stdout.splitlines()[-1])


def peer_here(case: Case, threads: int) -> float:
    """What `peer` runs in a process of its own."""
    import torch
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from tests.benchmarks._sb3 import sac

    torch.set_num_threads(threads)
    makers = [partial(Official, case, env) for env in range(case.num_envs)]
    vector = SubprocVecEnv(makers, start_method="spawn")
    try:
        agent = sac(case.values, vector, seed=0, device="cpu")
        agent.learn(case.warmup + 10 * case.num_envs)
        begun, before = time.perf_counter(), agent.num_timesteps
        agent.learn(case.peer, reset_num_timesteps=False)
        return (agent.num_timesteps - before) / (time.perf_counter() - begun)
    finally:
        vector.close()


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for name, case in (QUICK if quick else CASES).items():
        here: list[float] = []
        there: list[float] = []
        for _ in range(1 if quick else 3):
            here.append(ours(case))
            there.append(max(peer(case, threads) for threads in (1, 2)))
        own, other = statistics.median(here), statistics.median(there)
        what = f"SAC, {case.recipe}, {len(case.tasks)} tasks, {case.num_envs} environments"
        rows.append((what, "ours", own, "stable-baselines3", other, "steps/s"))
        metrics |= {f"ratio_{name}": own / other, f"steps_per_second_{name}": own}
    report("end_to_end", rows, metrics)


if __name__ == "__main__":
    main()
