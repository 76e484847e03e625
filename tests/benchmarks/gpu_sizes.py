"""How much each part of `gpu.sh` does: on a GPU, and in a dry run on the CPU."""

from __future__ import annotations

from typing import Any, NamedTuple


class Sizes(NamedTuple):
    """What parts are made of.

    Attributes:
        device: where everything is.
        precisions: that updates are measured in.
        guide: the recipe of most figures.
        batches: transitions in a batch, by recipe.
        seconds: that each rate is measured for.
        block: updates between two looks at the clock.
        equal: updates after which captured ones are compared with eager ones.
        seeds: that learn in one update.
        seeds_of: recipes of which several seeds are measured.
        acts: actions compared with those behind queued updates.
        copied: bytes.
        profiled: updates.
        replays: of a graph of single operations.
        turns: operations in it.
        width: of the layer whose products are measured.
        compiles: whether torch.compile compiles.
        steps: of a whole run, which is ended before.
        log_every: steps between two lines of a run.
        last_episodes: of a task, at the end of a run.
        options: of each run besides.
        tasks_values: of a recipe on tasks, changed.
        rollout_values: of a recipe with rollouts, changed.
        long_steps: of the run whose success is measured.
        long_episodes: of a task, at its end.
        resumed_steps: of the run that is killed.
        alone: environments that are measured by themselves.
        alone_seconds: how long.
        pack: runs beside each other.
        pack_seconds: how long.
        pack_steps: of each of them at most.
        watched_after: updates of a run before its profile.
        watched: updates of a run in its profile.
        watched_envs: environments of such runs.
        patience: factor on limits: who tries parts beside other work wants to see them work.
    """

    device: str
    precisions: tuple[str, ...]
    guide: str
    batches: dict[str, int]
    seconds: float
    block: int
    equal: int
    seeds: tuple[int, ...]
    seeds_of: tuple[str, ...]
    acts: int
    copied: int
    profiled: int
    replays: int
    turns: int
    width: int
    compiles: bool
    steps: int
    log_every: int
    last_episodes: int
    options: tuple[str, ...]
    tasks_values: tuple[str, ...]
    rollout_values: tuple[str, ...]
    long_steps: int
    long_episodes: int
    resumed_steps: int
    alone: tuple[int, ...]
    alone_seconds: float
    pack: int
    pack_seconds: float
    pack_steps: int
    watched_after: int
    watched: int
    watched_envs: tuple[int, ...]
    patience: float

    @property
    def dry(self) -> bool:
        """Whether these are a dry run's."""
        return self.device == "cpu"


_SMALL = (
    *("tasks=reach", "episode_steps=50", "actor_hidden=8", "critic_hidden=8", "batch_size=20"),
    *("warmup_steps=100", "env_steps_per_update=10", "replay_capacity=2000"),
)
_RECIPES = ("guide-mt10", "mclean2025-mt10")
_TABLE: dict[str, tuple[Any, Any]] = {
    # name: on a GPU, in a dry run
    "device": ("cuda", "cpu"),
    "precisions": (("fp32", "tf32", "bf16"), ("fp32",)),
    "guide": ("guide-mt10", "guide-mt10-debug"),
    "batches": ({"guide-mt10": 512, "mclean2025-mt10": 1280}, {"guide-mt10-debug": 8}),
    "seconds": (3.0, 0.0),
    "block": (100, 1),
    "equal": (1000, 2),
    "seeds": ((1, 2, 4, 8), (1, 2)),
    "seeds_of": (("guide-mt10-debug", *_RECIPES), ("guide-mt10-debug",)),
    "acts": (10_000, 20),
    "copied": (2**26, 2**16),
    "profiled": (20, 1),
    "replays": (50, 1),
    "turns": (24, 1),
    "width": (1024, 16),
    "compiles": (True, False),
    "steps": (100_000_000, 400),
    "log_every": (10_000, 50),
    "last_episodes": (10, 1),
    "options": ((), ("--num-envs", "2", "--workers", "0")),
    "tasks_values": ((), _SMALL),
    "rollout_values": ((), ("hidden=8", "rollout_size=100")),
    "long_steps": (2_000_000, 400),
    "long_episodes": (50, 1),
    "resumed_steps": (60_000, 1500),
    "alone": ((10, 30), (1,)),
    "alone_seconds": (8.0, 0.2),
    "pack": (4, 2),
    "pack_seconds": (40.0, 60.0),
    "pack_steps": (100_000_000, 200),
    "watched_after": (3000, 3),
    "watched": (300, 5),
    "watched_envs": ((10, 30), (10,)),
    "patience": (1.0, 4.0),
}
GPU = Sizes(**{name: size for name, (size, _) in _TABLE.items()})
DRY = Sizes(**{name: size for name, (_, size) in _TABLE.items()})
