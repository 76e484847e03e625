"""An update of TD3 and of DQN by themselves: ours against Stable-Baselines3's `train(gradient_steps)`.

Both sides have the same networks and batches, drawn from replays of random transitions, on the same threads.
They take turns, and the median of the ratios of neighbours counts, for other programs slow down both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv

from tests.benchmarks import _sb3
from tests.benchmarks._report import Row, arguments, report
from trainer import recipe as recipes
from trainer.algorithms.dqn_update import DQN
from trainer.algorithms.off_policy import OffPolicy
from trainer.algorithms.td3_update import TD3
from trainer.replay import TransitionReplay

TRANSITIONS = 20_000
BOX = gymnasium.spaces.Box(-1.0, 1.0, (6,), np.float32)
CASES: dict[str, tuple[str, int, gymnasium.Space, dict[str, Any]]] = {
    "td3, 400 and 300": ("td3", 17, BOX, {}),
    "td3, 2x256": ("td3", 17, BOX, {"actor_hidden": (256, 256), "critic_hidden": (256, 256)}),
    "dqn, 2x64": ("dqn", 4, gymnasium.spaces.Discrete(2), {"hidden": (64, 64)}),
    "dqn, 2x256": ("dqn", 4, gymnasium.spaces.Discrete(2), {}),
}
"""A recipe, the numbers in an observation, the actions, and values that differ from the recipe's."""
CALLS = {"td3": 10, "dqn": 60}
"""Updates in a round."""


class Sized(gymnasium.Env):
    """An environment of given sizes, which is never stepped."""

    def __init__(self, observation: int, action_space: gymnasium.Space) -> None:
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (observation,), np.float32)
        self.action_space = action_space


def sides(name: str, observation: int, space: gymnasium.Space, values: Mapping[str, Any]) -> dict:
    """Returns what makes so many updates, for both sides, with replays of the same transitions."""
    values = {**values, "replay_capacity": TRANSITIONS}
    peer = getattr(_sb3, name)(values, DummyVecEnv([lambda: Sized(observation, space)]), seed=0, device="cpu")
    peer.set_logger(configure(None, []))
    agent: OffPolicy
    if name == "td3":
        agent = TD3(TD3.configuration.from_values(values), observation, space.shape[0], 1)
    else:
        agent = DQN(DQN.configuration.from_values(values), observation, int(space.n))
    width = agent.policy.action_dim
    replay = TransitionReplay(TRANSITIONS, values["batch_size"], observation, width)
    rng = np.random.default_rng(0)
    for _ in range(TRANSITIONS):
        seen, then = rng.standard_normal((2, 1, observation), np.float32)
        action = agent.policy.uniform(rng, 1)
        reward, ends = rng.standard_normal(1, np.float32), rng.random(1) < 0.01
        replay.add(seen, action, reward, then, ends)
        theirs = action if name == "td3" else action.astype(np.int64)[0]
        peer.replay_buffer.add(seen, then, theirs, reward, ends, [{}])
    numbers = count()

    def ours(times: int) -> None:
        for _ in range(times):
            agent.update(replay.sample(), next(numbers) % agent.turns)

    batch = values["batch_size"]
    return {"ours": ours, "sb3": lambda times: peer.train(gradient_steps=times, batch_size=batch)}


def rounds(both: Mapping[str, Callable[[int], None]], calls: int, number: int) -> dict[str, list[float]]:
    """Seconds of an update of each side, in turn, after two rounds that do not count."""
    found: dict[str, list[float]] = {side: [] for side in both}
    for turn in range(number + 2):
        for side, work in both.items():
            begun = time.perf_counter()
            work(calls)
            if turn >= 2:
                found[side].append((time.perf_counter() - begun) / calls)
    return found


def main() -> None:
    """Measures and reports."""
    quick = arguments(__doc__).quick
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for title, (name, observation, space, changes) in CASES.items():
            values = {**recipes.load(name).values, **changes}
            found = rounds(sides(name, observation, space, values), CALLS[name], 5 if quick else 15)
            rate = {side: 1 / statistics.median(seconds) for side, seconds in found.items()}
            what = f"{title}, {threads} thread{'s' if threads > 1 else ''}"
            rows.append((what, "ours", rate["ours"], "Stable-Baselines3", rate["sb3"], "updates/s"))
            ratios = (b / a for a, b in zip(found["ours"], found["sb3"], strict=True))
            metrics["ratio_" + what.replace(",", "").replace(" ", "_")] = statistics.median(ratios)
    report("off_policy", rows, metrics)


if __name__ == "__main__":
    main()
