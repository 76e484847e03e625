"""What PPO, A2C, TD3 and DQN reach at equal steps: ours against Stable-Baselines3's, with the same settings.

Each case trains both sides on each seed with as many environments, then plays the mean (or likeliest)
actions of each final policy in the same 20 episodes. The table shows the mean over seeds, the lines before it
Student's 95% interval of both. `ratio_`: 1 + (ours - peer) / the larger spread of both, so above 1 ours is
better. `ratio_speed_`: steps a second of whole trainings, the median of neighbours, where both are known.
`--quick` takes one seed of the cheapest cases. `--keep FILE` writes each training's return into a file as
soon as it is known, and takes those from it that it holds: what was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from tests.benchmarks import _sb3
from tests.benchmarks._report import Row, report
from tests.benchmarks._trained import trained
from tests.benchmarks.peers import results
from trainer.settings import read_settings

EPISODES = 20
NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


@dataclass(frozen=True)
class Case:
    """An environment with an algorithm, and its settings under the names of our recipes."""

    algorithm: str
    environment: str
    steps: int
    envs: int
    values: dict[str, Any] = field(default_factory=dict)
    cheap: bool = False
    pace: dict[str, int] = field(default_factory=dict)
    """Arguments of the peer's alone: how its zoo has it learn, in bursts."""


CASES = {
    "ppo-cartpole": Case("ppo", "CartPole-v1", 60_000, 8),
    "ppo-levers": Case(
        *("ppo", "tests.trainer.envs_for_tests:Levers-v0", 16_384, 8),
        {"rollout_size": 512, "batch_size": 128, "gamma": 0.5, "learning_rate": 1e-3},
        cheap=True,
    ),
    "ppo-pendulum": Case(
        *("ppo", "Pendulum-v1", 98_304, 4),
        {"rollout_size": 4096, "batch_size": 256, "gamma": 0.9, "learning_rate": 1e-3},
    ),
    # as Stable-Baselines3's zoo has it; with batches of 256, ten epochs and rewards as they are, some of both
    # sides' policies are but half learnt by then, and their likeliest actions never swing up
    "ppo-acrobot": Case(
        *("ppo", "Acrobot-v1", 98_304, 16),
        {"rollout_size": 4096, "batch_size": 64, "epochs": 4, "gae_lambda": 0.94} | NORMALIZED,
    ),
    "ppo-halfcheetah": Case("ppo-mujoco", "HalfCheetah-v5", 200_704, 8),
    "a2c-cartpole": Case("a2c", "CartPole-v1", 200_000, 8),
    # likewise; with rewards as they are, half of both sides' policies never swing up
    "td3-pendulum": Case("td3", "Pendulum-v1", 20_000, 1, {"warmup_steps": 1_000}),
    "td3-halfcheetah": Case("td3", "HalfCheetah-v5", 100_000, 1),
    "dqn-cartpole": Case(
        *("dqn", "CartPole-v1", 50_000, 1),
        pace={"train_freq": 256, "gradient_steps": 128, "target_update_interval": 10},
    ),
    # as Stable-Baselines3's zoo has it
    "dqn-acrobot": Case(
        *("dqn", "Acrobot-v1", 100_000, 1),
        {"learning_rate": 6.3e-4, "batch_size": 128, "replay_capacity": 50_000, "warmup_steps": 1_000}
        | {"env_steps_per_update": 1, "target_interval": 250, "exploration_share": 0.12, "epsilon_end": 0.1},
        pace={"train_freq": 4, "gradient_steps": -1, "target_update_interval": 250},
    ),
    "a2c-acrobot": Case("a2c", "Acrobot-v1", 200_000, 16, {"rollout_size": 80} | NORMALIZED),
}


def ours(case: Case, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Trains with our loop; returns the final policy."""
    values = {"environment": case.environment, **case.values}
    changes = []
    for key, value in values.items():
        changes += [
            "--set",
            f"{key}={str(value).lower() if isinstance(value, bool) else value}",
            "--unlock",
            key,
        ]
    with tempfile.TemporaryDirectory() as folder:
        settings = read_settings(
            [
                *("--recipe", case.algorithm, *changes, "--total-steps", str(case.steps)),
                *("--num-envs", str(case.envs), "--seed", str(seed), "--run-dir", folder, "--device", "cpu"),
                *("--eval-every", "0", "--checkpoint-every", "0", "--workers", "0", "--wandb", "disabled"),
                *("--threads", str(torch.get_num_threads())),
            ],
            {},
        )
        policy = trained(settings)
    task = np.zeros(1, np.int32)
    scaled = settings.recipe.entry.box == "scaled"
    space = gymnasium.make(case.environment).action_space

    def act(observation: np.ndarray) -> np.ndarray:
        action: np.ndarray = policy.act(observation[None], task, greedy=True)[0]
        return space.low + (action + 1) / 2 * (space.high - space.low) if scaled else action

    return act


def theirs(case: Case, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Trains with Stable-Baselines3; returns the final policy, free of the offsets of its choices."""
    settings = read_settings(["--recipe", case.algorithm], {}).recipe.values | case.values
    make = lambda: gymnasium.wrappers.FlattenObservation(gymnasium.make(case.environment))  # noqa: E731
    envs: Any = make_vec_env(lambda: FromZero(make()), case.envs, seed=seed)
    if "replay_capacity" in settings:
        off_policy: Any = getattr(_sb3, case.algorithm)(settings, envs, seed=seed, device="cpu", **case.pace)
        off_policy.learn(case.steps)
        return lambda observation: np.atleast_1d(off_policy.predict(observation, deterministic=True)[0])
    if settings["normalize_observations"] or settings["normalize_rewards"]:
        envs = VecNormalize(
            envs,
            norm_obs=settings["normalize_observations"],
            norm_reward=settings["normalize_rewards"],
            gamma=settings["gamma"],
        )
    rate = settings["learning_rate"]
    falls = settings["learning_rate_schedule"] == "linear"
    same = {
        "learning_rate": (lambda left: left * rate) if falls else rate,
        "n_steps": -(-settings["rollout_size"] // case.envs),
        "gamma": settings["gamma"],
        "gae_lambda": settings["gae_lambda"],
        "ent_coef": settings["entropy_coefficient"],
        "vf_coef": settings["value_coefficient"],
        "max_grad_norm": settings["max_grad_norm"],
        "policy_kwargs": {"net_arch": list(settings["hidden"])},
        "seed": seed,
        "device": "cpu",
    }
    if "batch_size" in settings:
        learner: Any = stable_baselines3.PPO(
            "MlpPolicy",
            envs,
            batch_size=settings["batch_size"],
            n_epochs=settings["epochs"],
            clip_range=settings["clip_range"],
            **same,
        )
    else:
        learner = stable_baselines3.A2C("MlpPolicy", envs, **same)
    learner.learn(case.steps)
    standardise = envs.normalize_obs if isinstance(envs, VecNormalize) else lambda observation: observation

    def act(observation: np.ndarray) -> np.ndarray:
        action: np.ndarray = learner.predict(standardise(observation), deterministic=True)[0]
        return np.atleast_1d(action)

    return act


class FromZero(gymnasium.ActionWrapper):
    """Choices that begin at 0, for the peer ignores where they begin."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._start = getattr(env.action_space, "start", 0)
        if isinstance(env.action_space, gymnasium.spaces.MultiDiscrete):
            self.action_space = gymnasium.spaces.MultiDiscrete(env.action_space.nvec)

    def action(self, action: Any) -> Any:
        """Names the choice as the environment does."""
        return action + self._start if np.any(self._start) else action


def mean_return(case: Case, act: Callable[[np.ndarray], np.ndarray]) -> float:
    """Plays the same episodes for everyone."""
    env = FromZero(gymnasium.wrappers.FlattenObservation(gymnasium.make(case.environment)))
    space, total = env.action_space, 0.0
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=1_000_000 + episode)
        over = False
        while not over:
            action: Any = act(np.asarray(observation, np.float32))
            if isinstance(space, gymnasium.spaces.Discrete):
                action = int(action[0])
            elif isinstance(space, gymnasium.spaces.Box):
                action = np.clip(action, space.low, space.high)
            else:
                action = action.astype(np.int64)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            over = terminated or truncated
    env.close()
    return total / EPISODES


def told(values: list[float]) -> str:
    """The mean and its 95% interval, where there are several."""
    mean = f"{statistics.mean(values):.1f}"
    if len(values) < 2:
        return mean
    low, high = results.interval(values)
    return f"{mean} [{low:.1f}, {high:.1f}]"


class Kept:
    """Returns by what they are of, in a file if there is one.

    Args:
        path: a JSON object in each line; None to keep nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known = {each["of"]: each for each in results.read(path)} if path else {}

    def of(self, case: Case, side: str, seed: int) -> tuple[float, float | None]:
        """Returns what a side reaches with a seed, trained now unless it is known, and its steps a second."""
        what = f"{side}, seed {seed}: {case}"
        if what not in self._known:
            learn, begun = ours if side == "ours" else theirs, time.perf_counter()
            policy = learn(case, seed)
            speed = case.steps / (time.perf_counter() - begun)
            self._known[what] = {"of": what, "return": mean_return(case, policy), "speed": speed}
            if self._path:
                results.append(self._path, self._known[what])
        return self._known[what]["return"], self._known[what].get("speed")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)} (all)")
    parser.add_argument("--quick", action="store_true", help="one seed of the cheapest cases")
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, 11), metavar="N", help="1 to 10 (3)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="where to go on")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="of PyTorch, on both sides (1)")
    given = parser.parse_args()
    if unknown := set(given.cases) - CASES.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    return given


def main() -> None:
    """Trains, plays and reports."""
    given = _arguments()
    torch.set_num_threads(given.threads)
    kept = Kept(given.keep)
    rows: list[Row] = []
    metrics: dict[str, float] = {}
    for name, case in CASES.items():
        if name not in (given.cases or CASES) or (given.quick and not case.cheap):
            continue
        found: dict[str, list[float]] = {"ours": [], "sb3": []}
        speeds: dict[str, list[float | None]] = {"ours": [], "sb3": []}
        for seed in range(1 if given.quick else given.seeds):
            for side, values in found.items():
                value, speed = kept.of(case, side, seed)
                values.append(value)
                speeds[side].append(speed)
                pace = "" if speed is None else f", {speed:.0f} steps/s"
                print(f"{name} seed {seed}: {side} {value:.1f}{pace}", flush=True)
        print(f"{name}: ours {told(found['ours'])}, sb3 {told(found['sb3'])}", flush=True)
        means = {side: statistics.mean(values) for side, values in found.items()}
        rows.append((f"return, {name}", "trainer", means["ours"], "sb3", means["sb3"], "reward"))
        metrics |= {f"{side}_{name}": mean for side, mean in means.items()}
        ratios = [a / b for a, b in zip(*speeds.values(), strict=True) if a and b]
        if ratios:
            metrics[f"ratio_speed_{name}"] = statistics.median(ratios)
        spread = max(*(max(values) - min(values) for values in found.values()), abs(means["sb3"]) / 20)
        metrics[f"ratio_{name}"] = 1.0 + (means["ours"] - means["sb3"]) / spread
    report("returns", rows, metrics)


if __name__ == "__main__":
    main()
