"""Runs within this process: the loop itself, with what `train` puts round it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainer.toys import CounterFactory
from trainer import checkpoint
from trainer.checkpoint import CheckpointStore
from trainer.envs.choice import factory_for
from trainer.envs.interface import EnvFactory
from trainer.loops.off_policy import OffPolicyRun
from trainer.loops.on_policy import OnPolicyRun
from trainer.loops.state import FoundCheckpoint
from trainer.preemption import StopSignals
from trainer.replay import Replay, TransitionReplay
from trainer.settings import TrainSettings, read_settings
from trainer.telemetry import Telemetry


def changed(values: Mapping[str, Any]) -> list[str]:
    """The options that give values to a recipe, locked or not."""
    return [part for name, value in values.items() for part in ("--set", f"{name}={value}", "--unlock", name)]


_NETWORKS = {"actor_hidden": "8", "critic_hidden": "8"}
_REPLAY = {"warmup_steps": "30", "batch_size": "16", "replay_capacity": "500", "env_steps_per_update": "4"}
_TASKS = {"tasks": "reach,push,door-close", "episode_steps": "20"}
_COUNTERS = {"warmup_steps": "60", "env_steps_per_update": "5", "replay_capacity": "3000"}
_ROBOTS = {"tasks": "reach,drawer-close", "rollout_size": "160", "batch_size": "auto", "episode_steps": "20"}
SMALL = {
    "sac": _NETWORKS | _REPLAY,
    "td3": _NETWORKS | _REPLAY,
    "td3-mt10": _NETWORKS | _REPLAY | _TASKS,
    "dqn": {"hidden": "8"} | _REPLAY,
    "local-demo": _NETWORKS | _REPLAY | _TASKS | _COUNTERS,
    "ppo": {"hidden": "16,16", "rollout_size": "64", "batch_size": "16", "epochs": "2"},
    "a2c": {"hidden": "16,16", "rollout_size": "20"},
    "mtppo-mt10": {"hidden": "16,16", "epochs": "2"} | _ROBOTS,
}
"""Values with which recipes learn in no time."""


def settings_for(run_dir: Path, recipe: str, *argv: str, **values: Any) -> TrainSettings:
    """The settings of a small run in this process alone, which neither evaluates nor saves before its end."""
    own = ("--wandb", "disabled", "--workers", "0", "--eval-every", "0", "--checkpoint-every", "0")
    words = ["--recipe", recipe, "--run-dir", str(run_dir), *changed(SMALL[recipe] | values), *own, *argv]
    return read_settings(words, {})


def settings_of_counters(run_dir: Path, *argv: str, **values: Any) -> TrainSettings:
    """The settings of a small run whose environments are counters, see `toys`."""
    return replace(settings_for(run_dir, "local-demo", *argv, **values), tasks=CounterFactory().tasks)


class StopAt(StopSignals):
    """Receives SIGUSR1 after so many vector steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self._looks = steps + 1  # the loop looks once before each vector step

    def __bool__(self) -> bool:
        self._looks -= 1
        if self._looks <= 0:
            self._note(10, None)
        return super().__bool__()


def run(
    settings: TrainSettings,
    factory: EnvFactory,
    *,
    resume: bool = False,
    replay: bool = True,
    stop: StopSignals | None = None,
    seed: int | None = None,
) -> SimpleNamespace:
    """Carries out an attempt; returns its exit `code` and the `learner`.

    Args:
        settings: of the run.
        factory: makes the environments.
        resume: go on from the newest checkpoint.
        replay: whether its replay is to be had.
        stop: interrupts it.
        seed: of PyTorch at the start of the process; the run's by default.
    """
    torch.manual_seed(settings.seed if seed is None else seed)
    store = store_of(settings)
    found = None
    if resume:
        path = store.newest(pytest.fail) if replay else checkpoint.newest(settings.run_dir, pytest.fail)
        assert path is not None
        found = FoundCheckpoint(path, store.load(path), replay)
    telemetry = Telemetry.open(settings.run_dir, {}, settings.total_steps, settings.attempt, settings.wandb)
    stop = StopSignals() if stop is None else stop
    arguments = settings, factory, torch.device("cpu"), telemetry, stop, store, found
    kind = OnPolicyRun if settings.recipe.entry.loop == "on-policy" else OffPolicyRun
    with telemetry, kind(*arguments) as attempt:
        return SimpleNamespace(code=attempt.train(), learner=attempt.learner)


def train(settings: TrainSettings, **how: Any) -> SimpleNamespace:
    """`run` in the environments that the recipe names."""
    recipe = settings.recipe
    goals = settings.goal_seed
    return run(
        settings, factory_for(recipe.entry, recipe.values, settings.tasks, settings.seed, goals), **how
    )


def train_on_counters(settings: TrainSettings, **how: Any) -> SimpleNamespace:
    """`run` in counters."""
    return run(settings, CounterFactory(), **how)


def store_of(settings: TrainSettings) -> CheckpointStore:
    return CheckpointStore(
        settings.run_dir, run_id=settings.run_id, recipe=settings.recipe.name, keep=settings.keep
    )


def newest(settings: TrainSettings) -> dict[str, Any]:
    """The parts of the newest checkpoint."""
    store = store_of(settings)
    return store.load(store.newest(pytest.fail))


def held(settings: TrainSettings) -> tuple[Replay, list[torch.Tensor]]:
    """The replay of the newest checkpoint, and each task's transitions, lane by lane."""
    store = store_of(settings)
    path = store.newest(pytest.fail)
    replay = Replay(**store.load(path)["replay"]["layout"])
    store.restore_replay(path, replay)
    transitions = replay._windows[torch.from_numpy(replay._lanes.transitions())]
    return replay, list(torch.split(transitions, replay.sizes.tolist()))


def replay_rows(settings: TrainSettings) -> torch.Tensor:
    """The rows of the newest checkpoint's replay of whole transitions."""
    store = store_of(settings)
    path = store.newest(pytest.fail)
    replay = TransitionReplay(**store.load(path)["replay"]["layout"])
    store.restore_replay(path, replay)
    return replay._rows[: replay._held]


def rows(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of that kind in metrics.jsonl, as far as they are written."""
    try:
        text = (run_dir / "metrics.jsonl").read_text()
    except FileNotFoundError:
        return []
    whole = text[: text.rfind("\n") + 1]
    return [row for row in map(json.loads, whole.splitlines()) if row["kind"] == kind]


def events(run_dir: Path) -> list[str]:
    return [row["message"] for row in rows(run_dir, "event")]
