"""The runs of docs/paper.md at full length, one row for each kind, most telling first."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.paper.curves import TASKS, WIDTH
from trainer import recipe

_LOGGED = 100
"""Training rows in a whole run, which are also the points of a curve of speed."""
_TWO, _TWENTY, _HUNDRED = 2_000_000, 20_000_000, 100_000_000
_SMALL: Mapping[str, Any] = {
    "tasks": list(TASKS),
    "actor_hidden": [WIDTH] * 3,
    "critic_hidden": [WIDTH] * 3,
    "batch_size": 128,
    "replay_capacity": 400_000,
    "env_steps_per_update": 8,
    "warmup_steps": 16_000,
    "goals": "seed",
}
"""Four tasks with networks of width 128 and 32 transitions of each in a batch: what a processor can carry."""


@dataclass(frozen=True)
class Row:
    """A recipe, as it is or with values changed, trained to a number of steps with some seeds.

    Attributes:
        name: in commands and in the table.
        recipe: its name.
        steps: environment steps.
        num_envs: environments.
        seeds: one run each.
        evaluations: how many during the run; the last one has 50 episodes a task, the others 10.
        device: `cuda` or `cpu`.
        changed: values that are not the recipe's.
        kill_at: the step at which a run is killed with SIGKILL once, to go on from its last checkpoint; None
            for a run that is left alone.
        like: the row whose run of the same seed must end with the same parameters; "" for none.
    """

    name: str
    recipe: str
    steps: int
    num_envs: int
    seeds: tuple[int, ...]
    evaluations: int
    device: str = "cuda"
    changed: Mapping[str, Any] = field(default_factory=dict)
    kill_at: int | None = None
    like: str = ""

    @property
    def tasks(self) -> tuple[str, ...]:
        """Full names."""
        return recipe.task_names({**recipe.load(self.recipe).values, **self.changed}["tasks"])

    @property
    def group(self) -> str:
        """The set of tasks: a benchmark's name, or their number."""
        names = {**recipe.load(self.recipe).values, **self.changed}["tasks"]
        return str(names[0]) if len(names) == 1 else f"{len(names)} tasks"

    def command(self, seed: int, run_dir: Path) -> list[str]:
        """Returns the command that starts a run; with `--resume` after it, the one that goes on with it."""
        argv = [sys.executable, "-m", "trainer", "train", "--recipe", self.recipe, "--run-dir", str(run_dir)]
        for name, value in self.changed.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            argv += ["--unlock", name, "--set", f"{name}={text}"]
        options: dict[str, Any] = {
            "total-steps": self.steps,
            "num-envs": self.num_envs,
            "seed": seed,
            "device": self.device,
            "precision": "tf32" if self.device == "cuda" else "fp32",
            "eval-every": self.steps // self.evaluations,
            "eval-episodes": 10,
            "final-episodes": 50,
            "checkpoint-every": self.steps // (10 if self.device == "cpu" else 4),
            "keep": 1,
            "log-every": self.steps // _LOGGED,
            "wandb": "disabled",
        }
        if self.device == "cpu":
            options |= {"workers": 0, "threads": 1}  # one processor, and another run beside it
        return argv + [word for name, value in options.items() for word in (f"--{name}", str(value))]


_ALL = (
    Row("guide-2m", "guide-mt10", _TWO, 30, (1, 2), 8),
    Row("guide-2m-killed", "guide-mt10", _TWO, 30, (1,), 8, kill_at=_TWO // 2, like="guide-2m"),
    Row("strong-2m", "strong-mt10", _TWO, 10, (1,), 8),
    Row("mclean-2m", "mclean2025-mt10", _TWO, 10, (1,), 8),
    Row("strong-20m", "strong-mt10", _TWENTY, 10, (1, 2), 20),
    Row("guide-20m", "guide-mt10", _TWENTY, 30, (1, 2), 20),
    Row("mclean-20m", "mclean2025-mt10", _TWENTY, 10, (1, 2), 20),
    Row("mclean-mt50", "mclean2025-mt50", _HUNDRED, 50, (1,), 50),
    Row("cpu-strong", "strong-mt10", 1_000_000, 8, (1, 2, 3), 10, "cpu", _SMALL),
    Row("cpu-mclean", "mclean2025-mt10", 1_000_000, 8, (1, 2, 3), 10, "cpu", _SMALL),
)
ROWS = {row.name: row for row in _ALL}
