"""Every step that a recipe may have captured, captured and not: to the bit the same, on a model of a GPU.

Each way in which a recipe computes is taken once: its algorithm, heads, networks, precision, what it falls
back to when memory is short, and several seeds whose updates are one graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer import runs
from tests.trainer.cuda_model import CudaModel
from tests.trainer.learners import live
from tests.trainer.toys import CounterFactory
from trainer import recipe as recipes
from trainer.algorithms import capture, pieces, sac_explicit
from trainer.algorithms.kernels.plain import plain
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.envs.interface import EnvFactory
from trainer.loops import learner_group, memory
from trainer.loops.generators import Stream
from trainer.loops.learner import Learner
from trainer.loops.learner_group import LearnerGroup
from trainer.loops.rollout_group import RolloutGroup
from trainer.loops.rollout_learner import RolloutLearner
from trainer.ranks.parallel import Ranks
from trainer.recipe.environments import METAWORLD
from trainer.recipe.share import evaluates_apart
from trainer.replay import TransitionReplay
from trainer.seeds.group import join_learners
from trainer.settings import TrainSettings, read_settings

L = TypeVar("L")
PRECISIONS = ("fp32", "bf16")
"""TF32 is a mode of a GPU's products, and no other operation."""
SMALL = {
    "actor_hidden": 8,
    "critic_hidden": 8,
    "hidden": 8,
    "batch_size": 24,
    "rollout_size": 48,
    "episode_steps": 12,
    "epochs": 2,
    "replay_capacity": 600,
    "warmup_steps": 24,
    "value_bins": 11,
}
"""Sizes, which decide nothing of how an update is computed."""
IGNORED = {*SMALL, "tasks", "goals", "environment", "evaluation_episodes", "seed"}


def way(name: str) -> tuple[Any, ...]:
    """Returns what decides how a recipe computes: numbers count by whether they are 0."""
    recipe = recipes.load(name)

    def kind(value: Any) -> Any:
        return bool(value) if isinstance(value, int | float) else value

    values = {key: kind(value) for key, value in recipe.values.items() if key not in IGNORED}
    layers = {key: len(recipe.values[key]) > 1 for key in ("actor_hidden", "critic_hidden") if key in values}
    categorical, apart = bool(recipe.values.get("value_bins")), is_wide(recipe)
    return recipe.algorithm, recipe.environment, categorical, apart, *sorted({**values, **layers}.items())


def is_wide(recipe: recipes.Recipe) -> bool:
    return recipe.algorithm == "sac" and evaluates_apart(recipe.values["actor_hidden"])


def ways() -> list[str]:
    """Returns a recipe for each way in which one computes."""
    found: dict[tuple[Any, ...], str] = {}
    for name in recipes.names():
        found.setdefault(way(name), name)
    return list(found.values())


WAYS = ways()
OFF_POLICY = [name for name in WAYS if recipes.load(name).entry.loop == "off-policy"]
JOINING = [name for name in OFF_POLICY if recipes.load(name).entry.learner().joins]
ON_POLICY = [name for name in WAYS if recipes.load(name).entry.loop == "on-policy"]


def settings_for(folder: Path, name: str, precision: str) -> tuple[TrainSettings, EnvFactory]:
    recipe = recipes.load(name)
    values, several = recipe.values, recipe.environment is METAWORLD
    changes: dict[str, Any] = {key: value for key, value in SMALL.items() if values.get(key)}
    for key in ("actor_hidden", "critic_hidden", "hidden"):
        if key in changes:
            width = 512 if key == "actor_hidden" and is_wide(recipe) else changes[key]
            changes[key] = ",".join([str(width)] * min(len(values[key]), 2))
    if several:
        changes["tasks"] = "reach,push,door-close"
    if values.get("normalize_rewards") == "returns":
        changes["value_bound"] = 5.0
    argv = runs.changed(changes)
    argv += ["--recipe", name, "--run-dir", str(folder), "--precision", precision, "--device", "cuda"]
    argv += ["--wandb", "disabled", "--workers", "0", "--num-envs", "3" if several else "2"]
    settings = read_settings(argv, {})
    if several:
        return settings, CounterFactory()
    return settings, GymnasiumFactory(settings.recipe.values["environment"], actions="clipped", seed=0)


@pytest.fixture
def cuda() -> Iterator[CudaModel]:
    small = patch.object(pieces, "_LEAST", 16)  # networks this small would else be left whole
    with CudaModel() as model, small:
        yield model
    assert model.order.races == []
    assert model.faults == []


@contextmanager
def uncaptured() -> Iterator[None]:
    """Within, learners are made that capture nothing."""
    with (
        patch.object(capture, "CudaRecorder", lambda *_: None),
        patch.object(learner_group, "CudaRecorder", lambda *_: None),
    ):
        yield


def fill(learner: Learner, factory: EnvFactory, seed: int, steps: int = 36) -> None:
    """Adds transitions of three environments to a replay."""
    rng, envs = np.random.default_rng(seed), 3
    for step in range(steps):
        seen, following = rng.standard_normal((2, envs, factory.observation_dim), np.float32)
        action = rng.uniform(-1.0, 1.0, (envs, factory.action_dim)).astype(np.float32)
        reward = rng.standard_normal(envs, np.float32)
        if isinstance(learner.replay, TransitionReplay):
            learner.replay.add(seen, action, reward, following, rng.random(envs) < 0.1)
        else:
            remaining = np.full(envs, SMALL["episode_steps"] - step % SMALL["episode_steps"])
            learner.replay.add(seen, action, reward, following, np.arange(envs), remaining)


def snapshot(tensors: Iterable[Tensor]) -> list[Tensor]:
    return [tensor.detach().clone() for tensor in tensors]


def of_seeds(count: int, cuda: CudaModel, make: Callable[[int], L]) -> tuple[list[Stream], list[L]]:
    """Returns the random streams of so many seeds, and what is made for each within its own."""
    streams, made = [], []
    for seed in range(count):
        torch.manual_seed(seed)
        streams.append(Stream(cuda.device))
        with streams[-1]:
            made.append(make(seed))
    return streams, made


EXPLICIT = ("guide-mt10", "mclean2025-mt10", "sac")
"""Recipes whose updates have explicit gradients on a GPU that has kernels."""


@pytest.fixture(autouse=True)
def operations(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has updates computed with autograd, or with explicit gradients where a test names this fallback."""
    explicit = request.node.callspec.params.get("fallback") == "explicit"
    chosen = plain if explicit else lambda _: None
    monkeypatch.setattr(sac_explicit, "on_device", lambda _, constants: (chosen(constants), ""))
    monkeypatch.setattr(memory, "sampler_on", lambda _: (None, ""))  # a GPU's kernels know nothing of a model


FALLBACKS = {
    "device": {"replay_on_host": False, "micro_batches": 1},
    "host": {"replay_on_host": True, "micro_batches": 1},
    "parts": {"replay_on_host": True, "micro_batches": 2},
}
FALLBACKS["explicit"] = FALLBACKS["device"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fallback", "precision"),
    [
        *((name, "device", precision) for name in OFF_POLICY for precision in PRECISIONS),
        *((name, "parts", "fp32") for name in OFF_POLICY),
        *((name, "explicit", "fp32") for name in EXPLICIT),
        *((name, "host", "bf16") for name in [*OFF_POLICY[:1], "sac"]),
    ],
)
def test_an_update_off_policy(
    cuda: CudaModel, tmp_path: Path, name: str, fallback: str, precision: str
) -> None:
    settings, factory = settings_for(tmp_path, name, precision)

    def learnt() -> list[list[Tensor]]:
        torch.manual_seed(0)
        learner = Learner(settings, factory, cuda.device, print, FALLBACKS[fallback])
        found = []
        for seed in range(4):
            fill(learner, factory, seed)  # also between captured updates
            losses = learner.update()
            found.append(snapshot([*learner.agent.tensors(), *losses.values()]))
        assert learner.note == ""
        assert learner.remark == "updates are computed by PyTorch's operations"
        assert (getattr(learner.agent, "operations", None) is not None) == (fallback == "explicit")
        return found

    check_captured_and_not(learnt)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "fallback", "precision"),
    [
        *((name, *how) for name in JOINING for how in [("device", "fp32"), ("parts", "bf16")]),
        *((name, "explicit", "fp32") for name in EXPLICIT),
    ],
)
def test_the_updates_of_several_seeds_off_policy(
    cuda: CudaModel, tmp_path: Path, name: str, fallback: str, precision: str
) -> None:
    settings, factory = settings_for(tmp_path, name, precision)

    def learnt() -> list[list[Tensor]]:
        def filled(seed: int) -> Learner:
            learner = Learner(settings, factory, cuda.device, print, FALLBACKS[fallback])
            fill(learner, factory, seed)
            return learner

        streams, learners = of_seeds(3, cuda, filled)
        group = join_learners(learners, streams)
        assert isinstance(group, LearnerGroup)
        found = []
        for who in [(0, 1, 2)] * 3 + [(1,), (0, 1, 2)]:
            group.update(who)
            found.append(snapshot(tensor for each in learners for tensor in each.agent.tensors()))
        assert {learner.note for learner in learners} == {""}
        return found

    check_captured_and_not(learnt)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("name", ON_POLICY)
def test_updates_on_policy(cuda: CudaModel, tmp_path: Path, name: str, seeds: int, precision: str) -> None:
    settings, factory = settings_for(tmp_path, name, precision)

    def learnt() -> list[list[Tensor]]:
        streams, learners = of_seeds(
            seeds, cuda, lambda _: RolloutLearner(settings, factory, cuda.device, Ranks())
        )
        group = join_learners(learners, streams)
        found = []
        for rollout in range(2):
            for number, learner in enumerate(learners):
                rng = np.random.default_rng(seeds * rollout + number)
                tasks = learner.rollout.observation.shape[-1] - factory.observation_dim
                box = factory.action_space.kind == "box"
                live(learner.rollout, rng, box=box, tasks=tasks, episode=SMALL["episode_steps"])
            left = 1.0 - 0.1 * rollout
            if isinstance(group, RolloutGroup):
                group.learn(range(seeds), [left] * seeds, lambda *_: None)
            else:
                for stream, learner in zip(streams, learners, strict=True):
                    with stream:
                        learner.learn(left, lambda _: None)
            found.append(snapshot(tensor for each in learners for tensor in each.agent.tensors()))
            found.append(snapshot(loss for each in learners for loss in each.losses.values()))
        joint = seeds == 1 or learners[0].agent.joins
        assert all(learner.note == "" for learner in learners) or not joint
        return found

    check_captured_and_not(learnt)


def check_captured_and_not(learnt: Callable[[], list[list[Tensor]]]) -> None:
    """Learns twice, the second time without captures: all that was found must be equal."""
    captured = learnt()
    with uncaptured():
        eager = learnt()
    for ours, theirs in zip(captured, eager, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert torch.equal(one.nan_to_num(7.0), other.nan_to_num(7.0))
    assert not all(map(torch.equal, captured[0], captured[-1])), "something was learnt"
