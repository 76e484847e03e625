"""A whole training run against stable-baselines3's SAC on AsyncVectorEnv's like: environment steps a second.

Both learn the tasks of the recipe `local-demo` with its networks, batch and ratio of updates to steps, on
the CPU: 16 environments, one update of 256 transitions each vector step. Ours is `python -m trainer train`
as it is, with everything it does on the way; the peer is SAC with SubprocVecEnv and the official
environments, its one-hot ids appended, on the number of threads that suits it best here. What counts is
the rate while learning, evaluation and warm-up left out. `ratio_end_to_end` is ours over the peer's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS

from tests.benchmarks._report import arguments, report
from trainer import recipe as recipes
from trainer.envs.official import goal_vectors, official_task

RECIPE = recipes.load("local-demo")
TASKS = recipes.task_names(RECIPE.values["tasks"])
NUM_ENVS = 16


class Official(gymnasium.Wrapper):
    """The official environment of a task, cut and one-hot as the recipe says, with a goal of the 50."""

    def __init__(self, task: str) -> None:
        super().__init__(ALL_V3_ENVIRONMENTS[task]())
        self._goals = [official_task(task, goal) for goal in goal_vectors(task, 50, 42)]
        self._id = np.eye(len(TASKS), dtype=np.float32)[TASKS.index(task)]
        self._rng = np.random.default_rng(0)
        size = 39 + len(TASKS)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)

    def reset(self, **_):
        self.env.set_task(self._goals[self._rng.integers(50)])
        observation, info = self.env.reset()
        self._left = RECIPE.values["episode_steps"]
        return self._show(observation), info

    def step(self, action):
        observation, reward, _, _, info = self.env.step(action)
        self._left -= 1
        return self._show(observation), reward, False, self._left == 0, info

    def _show(self, observation):
        return np.concatenate([observation, self._id]).astype(np.float32)


def ours(steps: int) -> float:
    """The median rate of a run's log lines, in steps a second."""
    with tempfile.TemporaryDirectory() as folder:
        argv = ["--recipe", RECIPE.name, "--num-envs", str(NUM_ENVS), "--total-steps", str(steps)]
        argv += ["--run-dir", folder, "--eval-every", "0", "--wandb", "disabled", "--log-every", "2000"]
        subprocess.run(
            [sys.executable, "-m", "trainer", "train", *argv], check=True, stdout=subprocess.DEVNULL
        )
        lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    rates = [line["steps_per_second"] for line in lines if line["kind"] == "train" and line["step"] > 8000]
    return statistics.median(rates)


def peer(steps: int, threads: int) -> float:
    """The rate of stable-baselines3 after its warm-up, in steps a second."""
    script = f"from tests.benchmarks.end_to_end import peer_here; print(peer_here({steps}, {threads}))"
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(answer.stdout.splitlines()[-1])


def peer_here(steps: int, threads: int) -> float:
    """What `peer` runs in a process of its own."""
    import torch
    from stable_baselines3.common.vec_env import SubprocVecEnv

    from tests.benchmarks._sb3 import sac

    torch.set_num_threads(threads)
    values = RECIPE.values
    makers = [partial(Official, TASKS[env % len(TASKS)]) for env in range(NUM_ENVS)]
    vector = SubprocVecEnv(makers, start_method="spawn")
    try:
        agent = sac(values, vector, seed=0, device="cpu")
        agent.learn(values["warmup_steps"] + 10 * NUM_ENVS)
        begun, before = time.perf_counter(), agent.num_timesteps
        agent.learn(steps, reset_num_timesteps=False)
        return (agent.num_timesteps - before) / (time.perf_counter() - begun)
    finally:
        vector.close()


def main() -> None:
    """Run and report."""
    quick = arguments(__doc__).quick
    repetitions, our_steps, peer_steps = (1, 24_000, 3_000) if quick else (3, 60_000, 20_000)
    rates: dict[str, list[float]] = {"ours": [], "peer": []}
    for _ in range(repetitions):
        rates["ours"].append(ours(our_steps))
        rates["peer"].append(max(peer(peer_steps, threads) for threads in (1, 2)))
    here, there = statistics.median(rates["ours"]), statistics.median(rates["peer"])
    report(
        "end_to_end",
        [("SAC, 4 tasks, 16 environments", "ours", here, "stable-baselines3", there, "steps/s")],
        {"ratio_end_to_end": here / there, "steps_per_second": here},
    )


if __name__ == "__main__":
    main()
