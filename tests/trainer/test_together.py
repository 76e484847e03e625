"""Several seeds in one process: each ends with the very bits of its run alone."""

from __future__ import annotations

import signal
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.processes import finish, start, step_of, until
from tests.trainer.runs import StopAt, events, rows, settings_for, settings_of_counters
from tests.trainer.test_on_policy import STANDARDISED
from tests.trainer.toys import Counter, CounterFactory
from trainer.errors import UsageError
from trainer.loops import attempt, checkpointed, training
from trainer.loops.training import train
from trainer.preemption import StopSignals
from trainer.seeds import together
from trainer.seeds.together import Member, train_seeds, train_together
from trainer.settings import TrainSettings, read_settings


def sha256(run_dir: Path) -> str:
    """Of the final model, as the run has said."""
    (said,) = [event for event in events(run_dir) if "sha256" in event]
    return said.split()[-1]


def alone(settings: TrainSettings) -> str:
    """Trains a run by itself, beside where it is trained with others."""
    settings = replace(settings, run_dir=settings.run_dir.parent / f"alone-{settings.seed}")
    assert train(settings) == 0
    return sha256(settings.run_dir)


def all_at_once(runs: Sequence[TrainSettings], stops: dict[int, StopSignals] | None = None) -> list[Any]:
    """Trains them together; returns each one's code and why it failed."""
    found: dict[int, tuple[int, str]] = {}

    def member(settings: TrainSettings) -> Member:
        def ended(code: int, why: str) -> None:
            assert found.setdefault(settings.seed, (code, why)) == (code, why)

        return Member(settings, (stops or {}).get(settings.seed, StopSignals()), ended=ended)

    codes = train_together([member(settings) for settings in runs])
    assert codes == [found[settings.seed][0] for settings in runs]
    return [found[settings.seed] for settings in runs]


@pytest.fixture(params=["sac", "ppo", "a2c"])
def runs(request, tmp_path, monkeypatch) -> list[TrainSettings]:
    """Three seeds that differ in nothing else, on environments that are quick."""
    argv = "--total-steps", "320", "--num-envs", "4", "--checkpoint-every", "160", "--log-every", "40"
    if request.param == "sac":
        monkeypatch.setattr(training, "factory_for", lambda *_: CounterFactory())
        settings = settings_of_counters(tmp_path, *argv, env_steps_per_update="10")
    else:
        values = STANDARDISED | ({"target_kl": "0.01"} if request.param == "ppo" else {})
        settings = settings_for(tmp_path, request.param, *argv, **values)
    return [replace(settings, seed=seed, run_dir=tmp_path / f"seed-{seed}", together=3) for seed in (1, 2, 3)]


@pytest.mark.slow
def test_each_learns_what_it_learns_alone(runs):
    runs[1] = replace(runs[1], total_steps=240 if runs[1].recipe.algorithm == "a2c" else 256)
    expected = [alone(settings) for settings in runs]
    assert len(set(expected)) == 3
    assert all_at_once(runs) == [(0, "")] * 3
    assert [sha256(settings.run_dir) for settings in runs] == expected
    assert [row["step"] for row in rows(runs[0].run_dir, "train")] == list(range(40, 321, 40))

    # each is stopped at a step of its own, one of them not at all; they go on with the others or alone
    runs = [replace(settings, run_dir=settings.run_dir / "again") for settings in runs]
    assert all_at_once(runs, {1: StopAt(17), 2: StopAt(50)}) == [(85, ""), (85, ""), (0, "")]
    assert sha256(runs[2].run_dir) == expected[2]
    again = [replace(settings, resume="newest", attempt=1) for settings in runs]
    assert all_at_once(again[:2], {1: StopAt(30)}) == [(85, ""), (0, "")]
    assert sha256(runs[1].run_dir) == expected[1]
    assert train(replace(again[0], together=1)) == 0
    assert sha256(runs[0].run_dir) == expected[0]


@pytest.mark.cuda
def test_on_a_gpu_each_learns_about_what_it_learns_alone(runs):
    def learnt(settings: TrainSettings) -> torch.Tensor:
        held = torch.load(settings.run_dir / "checkpoints" / "final_model.pt", weights_only=True)["learner"]
        return torch.cat([part.flatten().cpu() for part in held["policy"].values()])

    few = 128 if runs[0].recipe.algorithm != "a2c" else 40
    runs = [replace(settings, device="cuda", total_steps=few) for settings in runs]
    for settings in runs:
        alone(settings)
    assert all_at_once(runs) == [(0, "")] * 3
    for settings in runs:
        by_itself = replace(settings, run_dir=settings.run_dir.parent / f"alone-{settings.seed}")
        torch.testing.assert_close(learnt(settings), learnt(by_itself), rtol=1e-2, atol=1e-3)


class Spoilt(Counter):
    """Gives rewards that are no numbers for ever, after some steps."""

    def step(self, action):
        observation, reward, success = super().step(action)
        return observation, (np.nan if self._goal > 20 else reward), success


@pytest.mark.slow
def test_one_that_diverges_touches_no_other(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt, "_MOST_SKIPPED", 20)
    monkeypatch.setattr(checkpointed, "_TROUBLED", 2)
    argv = "--num-envs", "4", "--checkpoint-every", "40", "--log-every", "20", "--total-steps"
    runs = [
        replace(
            settings_of_counters(tmp_path / f"seed-{seed}", *argv, str(1600 if seed == 2 else 320)),
            seed=seed,
        )
        for seed in (1, 2, 3)
    ]
    monkeypatch.setattr(
        training,
        "factory_for",
        lambda _, __, ___, seed, *____: CounterFactory(kind=Spoilt) if seed == 2 else CounterFactory(),
    )
    expected = [alone(runs[0]), alone(runs[2])]
    held: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    left = []

    class Watched(training.OffPolicyRun):
        def __init__(self, settings: TrainSettings, *rest: Any) -> None:
            left.append(list(held.values()).count(settings.seed))
            super().__init__(settings, *rest)
            held[self.learner] = settings.seed

    monkeypatch.setattr(training, "OffPolicyRun", Watched)
    first, second, third = all_at_once(runs)
    assert left == [0] * 5, "who goes back has let its learner go before it makes another one"
    assert first == third == (0, "")
    assert [sha256(runs[0].run_dir), sha256(runs[2].run_dir)] == expected
    assert second[0] == 1
    assert (
        "a loss or gradient that is not finite: the environment of red gave a reward that is nan" in second[1]
    )
    assert len([event for event in events(runs[1].run_dir) if "back to step" in event]) == 2


class Drawing(Counter):
    """An environment of one's own that draws from the generators of the process."""

    def step(self, action):
        observation, reward, success = super().step(action)
        return observation, reward + np.random.randn(), success


@pytest.mark.slow
def test_environments_of_ones_own_draw_as_if_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "factory_for", lambda *_: CounterFactory(kind=Drawing))
    settings = settings_of_counters(tmp_path, "--total-steps", "200", "--num-envs", "3")
    runs = [replace(settings, seed=seed, run_dir=tmp_path / f"seed-{seed}") for seed in (1, 2)]
    expected = [alone(settings) for settings in runs]
    monkeypatch.setattr(together, "_around", lambda _: together.HostGenerators())
    assert all_at_once(runs) == [(0, "")] * 2
    assert [sha256(settings.run_dir) for settings in runs] == expected


def test_whose_environments_may_draw_from_the_process(tmp_path):
    def around(*argv: str) -> bool:
        settings = read_settings(["--run-dir", str(tmp_path), *argv], {})
        return isinstance(together._around(settings), together.HostGenerators)

    own = "--recipe", "ppo", "--set", "environment=my.module:Maze-v0", "--unlock", "environment"
    assert around(*own, "--workers", "0")
    assert not around(*own, "--workers", "1")
    assert not around("--recipe", "ppo", "--workers", "0")
    assert not around("--recipe", "local-demo", "--workers", "0")


def test_nothing_begins_where_something_is_wrong(tmp_path):
    def settings(seed: int, *argv: str) -> TrainSettings:
        given = "--recipe", "ppo", "--wandb", "disabled", "--total-steps", "2048", *argv
        return read_settings([*given, "--seed", str(seed), "--run-dir", str(tmp_path / str(seed))], {})

    one, two = settings(1), settings(2)
    with pytest.raises(UsageError, match="differ only in their seeds, but these differ in num_envs"):
        all_at_once([one, settings(2, "--num-envs", "4")])
    with pytest.raises(UsageError, match="the same directory"):
        all_at_once([one, replace(two, run_dir=one.run_dir)])
    (two.run_dir / "checkpoints" / "step-000000000001").mkdir(parents=True)
    with pytest.raises(UsageError, match="already holds checkpoints"):
        train_seeds([one, two])
    assert not one.run_dir.exists()


@pytest.mark.slow
def test_a_run_that_may_not_begin_leaves_the_others(tmp_path):
    argv = "--total-steps", "40", "--num-envs", "4"
    runs = [replace(settings_for(tmp_path / str(seed), "a2c", *argv), seed=seed) for seed in (1, 2)]
    (runs[0].run_dir / "checkpoints" / "step-000000000001").mkdir(parents=True)
    (code, why), done = all_at_once(runs)
    assert code == 2
    assert "already holds checkpoints\n  continue with --resume" in why
    assert done == (0, "")


@pytest.mark.slow
def test_the_command(tmp_path):
    """All are stopped by a signal to the process, and go on: one of them has a folder that is damaged."""
    runs = [
        *("train", "--recipe", "ppo", "--seeds", "1,4..5", "--run-dir", str(tmp_path)),
        *("--wandb", "disabled", "--eval-every", "0", "--set", "rollout_size=64", "--set", "epochs=1"),
        *("--unlock", "rollout_size", "--unlock", "epochs"),
    ]

    def steps() -> list[int]:
        return [step_of(tmp_path / f"seed-{seed}") for seed in (1, 4, 5)]

    process = start(tmp_path, *runs, "--total-steps", "10_000_000")
    until(process, lambda: min(steps()) >= 100)
    process.send_signal(signal.SIGUSR1)
    output = finish(process)
    assert process.returncode == 85, output
    assert output.count("SIGUSR1 received: writing a checkpoint and stopping") == 3

    for path in (tmp_path / "seed-4" / "checkpoints").glob("step-*/model.pt"):
        path.write_bytes(b"torn")
    process = start(tmp_path, *runs, "--total-steps", str(max(steps()) + 10), "--resume")
    output = finish(process)
    assert process.returncode == 1, output
    assert "trainer: seed 4: none of the checkpoints in" in output
    assert output.count("the parameters of the final model") == 2
    assert (tmp_path / "seed-5" / "checkpoints" / "final_model.pt").exists()
    assert "Traceback" not in output
    assert torch.load(tmp_path / "seed-1" / "checkpoints" / "final_model.pt", weights_only=True)
