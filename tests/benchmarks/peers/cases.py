"""What is trained, by whom, and what nobody can train; only the standard library."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trainer import recipe as recipes
from trainer.recipe.algorithm import Algorithm


@dataclass(frozen=True)
class Case:
    """An environment with an algorithm; what a recipe of ours says is said to every side.

    Attributes:
        name: of the case.
        title: for people.
        recipe: names the values.
        environment: Gymnasium's id, or MT10.
        envs: how many, for every side.
        steps: of the full comparison; a multiple of a rollout.
        quick: of the quick one; 0 leaves the case out.
        begin: speed counts from this step on; a multiple of a rollout.
        changes: values unlike the recipe's.
        played: the final policy is played.
    """

    name: str
    title: str
    recipe: str
    environment: str
    envs: int
    steps: int
    quick: int
    begin: int
    changes: dict[str, Any] = field(default_factory=dict)
    played: bool = True

    @property
    def algorithm(self) -> str:
        """`ppo`, `a2c`, `sac`, `td3` or `dqn`."""
        return recipes.load(self.recipe).algorithm

    @property
    def entry(self) -> Algorithm:
        """What the registry says of the algorithm."""
        return recipes.load(self.recipe).entry

    @property
    def off_policy(self) -> bool:
        """Whether it learns from a replay."""
        return self.entry.loop == "off-policy"

    @property
    def values(self) -> dict[str, Any]:
        """The hyperparameters, under our names."""
        return dict(recipes.load(self.recipe).values) | self.changes

    @property
    def seeds(self) -> int:
        """Of the full comparison; more where returns differ much from seed to seed."""
        return 10 if self.environment == "HalfCheetah-v5" else 5

    @property
    def length(self) -> int:
        """Vector steps of a rollout, or between two updates from a replay."""
        steps = self.values["env_steps_per_update" if self.off_policy else "rollout_size"]
        return int(-(-steps // self.envs))


CASES = {
    case.name: case
    for case in (
        Case("ppo-cartpole", "PPO, CartPole-v1", "ppo", "CartPole-v1", 8, 61_440, 12_288, 4_096),
        Case("ppo-halfcheetah", "PPO, HalfCheetah-v5", "ppo", "HalfCheetah-v5", 8, 61_440, 12_288, 4_096),
        Case("a2c-cartpole", "A2C, CartPole-v1", "a2c", "CartPole-v1", 8, 60_000, 12_000, 2_000),
        Case("a2c-halfcheetah", "A2C, HalfCheetah-v5", "a2c", "HalfCheetah-v5", 8, 40_000, 0, 2_000),
        Case("sac-pendulum", "SAC, Pendulum-v1", "sac", "Pendulum-v1", 1, 4_000, 900, 300),
        Case("sac-halfcheetah", "SAC, HalfCheetah-v5", "sac", "HalfCheetah-v5", 1, 4_000, 0, 300),
        Case(
            *("sac-mt10", "SAC, Meta-World MT10", "guide-mt10", "MT10", 10, 1_000, 0, 600),
            {"warmup_steps": 500},
            played=False,
        ),
        Case(
            *("td3-halfcheetah", "TD3, HalfCheetah-v5", "td3", "HalfCheetah-v5", 1, 4_000, 700, 300),
            {"warmup_steps": 100},
        ),
        # epsilon has fallen by step 3,200
        Case("dqn-cartpole", "DQN, CartPole-v1", "dqn", "CartPole-v1", 1, 20_000, 6_000, 4_000),
    )
}

TITLES = {
    "ours": "clusterkit's trainer",
    "sb3": "Stable-Baselines3",
    "single-file": "single file",
    "skrl": "skrl",
    "rsl_rl": "rsl_rl",
    "rl_games": "rl_games",
}
"""The sides, ours first."""

PACKAGES = {
    "sb3": "stable-baselines3",
    "skrl": "skrl",
    "rsl_rl": "rsl-rl-lib",
    "rl_games": "rl-games",
}
"""What the sides in the peers' environment are installed as."""

_NO_A2C = "no A2C (its `a2c_...` agents compute PPO)"

ABSENT = {
    ("single-file", "td3-halfcheetah"): "no TD3",
    ("single-file", "dqn-cartpole"): "no DQN",
    ("rsl_rl", "ppo-cartpole"): "no discrete actions",
    ("rsl_rl", "a2c-cartpole"): "no A2C",
    ("rsl_rl", "a2c-halfcheetah"): "no A2C",
    ("rsl_rl", "sac-pendulum"): "no SAC",
    ("rsl_rl", "sac-halfcheetah"): "no SAC",
    ("rsl_rl", "sac-mt10"): "no SAC",
    ("rsl_rl", "td3-halfcheetah"): "no TD3",
    ("rsl_rl", "dqn-cartpole"): "no DQN",
    ("rl_games", "a2c-cartpole"): _NO_A2C,
    ("rl_games", "a2c-halfcheetah"): _NO_A2C,
    ("rl_games", "sac-mt10"): "one network size for SAC's actor and critics",
    ("rl_games", "td3-halfcheetah"): "no TD3",
    ("rl_games", "dqn-cartpole"): "no DQN",
}
"""Cells that cannot be, and why: (side, case)."""


def cells(quick: bool, seeds: int | None = None) -> list[tuple[str, str, int]]:
    """The cells as (case, side, seed) in the order in which they run.

    Every case and side comes before a second seed does, so that a run cut short has something of all; the
    sides of a case are neighbours, and another one begins with each seed.

    Args:
        quick: only the cases of the quick comparison.
        seeds: of each case; by default the case's own number.
    """
    names = list(TITLES)
    found = []
    for seed in range(seeds or max(case.seeds for case in CASES.values())):
        turned = names[seed % len(names) :] + names[: seed % len(names)]
        for case in CASES.values():
            if (quick and not case.quick) or seed >= (seeds or case.seeds):
                continue
            found += [(case.name, side, seed) for side in turned if (side, case.name) not in ABSENT]
    return found
