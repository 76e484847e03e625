"""What a run has captured is gone when the run is: a graph holds memory, and NCCL waits until it is gone."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.learners import make as make_learner
from tests.trainer.runs import StopAt, run, settings_for, settings_of_counters
from tests.trainer.test_capture import CpuRecorder
from tests.trainer.toys import CounterFactory
from trainer.algorithms.capture import CapturedUpdate
from trainer.envs.gymnasium_env import GymnasiumFactory
from trainer.loops import learner, rollout_learner
from trainer.loops.generators import Stream
from trainer.loops.learner_group import LearnerGroup

pytestmark = pytest.mark.usefixtures("warm_processes")


class Graph(CpuRecorder):
    """A recorder that, as a GPU's, holds no Python; its replay does nothing."""

    def record(self, work: Callable[[], object]) -> None:
        work()
        super().record(lambda: None)


class Captures:
    """Everything that was captured: the updates, weakly, and their recorders."""

    def __init__(self) -> None:
        self.updates: list[weakref.ref[CapturedUpdate]] = []
        self.recorders: list[Graph] = []

    def make(self, *args: Any, **how: Any) -> CapturedUpdate:
        recorder = Graph()
        self.recorders.append(recorder)
        update = CapturedUpdate(*args, **how | {"recorder": recorder})
        self.updates.append(weakref.ref(update))
        return update

    def alive(self) -> int:
        return sum(update() is not None for update in self.updates)

    def recorded(self) -> int:
        """Returns how many recorders hold a recording."""
        return sum(recorder._work is not None for recorder in self.recorders)


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Iterator[Captures]:
    """Has learners capture as on a GPU; meanwhile no garbage is collected."""
    found = Captures()
    for module in (learner, rollout_learner):
        monkeypatch.setattr(module, "CapturedUpdate", found.make)
    gc.collect()
    gc.disable()
    yield found
    gc.enable()


def off_policy(folder: Path) -> tuple[Any, Any]:
    return settings_of_counters(folder, "--total-steps", "120"), CounterFactory()


def on_policy(folder: Path) -> tuple[Any, Any]:
    settings = settings_for(folder, "ppo", "--total-steps", "128", "--num-envs", "4")
    return settings, GymnasiumFactory("CartPole-v1", actions="clipped", seed=0)


@pytest.mark.parametrize("kind", [off_policy, on_policy])
def test_nothing_that_a_run_has_captured_is_left_when_it_is_over(
    tmp_path: Path, captures: Captures, kind: Any
) -> None:
    settings, factory = kind(tmp_path)
    ended = run(settings, factory)
    assert any("replay" in recorder.calls for recorder in captures.recorders)
    assert captures.recorded() == 0, "also while somebody holds the learner"
    del ended
    assert captures.alive() == 0


@pytest.mark.parametrize("kind", [off_policy, on_policy])
def test_a_run_that_fails_drops_what_it_has_captured_whoever_holds_the_fault(
    tmp_path: Path, captures: Captures, kind: Any
) -> None:
    class Failing(StopAt):
        def __bool__(self) -> bool:
            if super().__bool__():
                raise ArithmeticError("in the middle of it")
            return False

    settings, factory = kind(tmp_path)
    with pytest.raises(ArithmeticError) as fault:
        run(settings, factory, stop=Failing(29))
    assert captures.recorders
    assert captures.recorded() == 0, fault


def test_a_group_that_parts_takes_its_captured_update_with_it(
    tmp_path: Path, captures: Captures, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams, learners = [], []
    for seed in range(2):
        streams.append(Stream(torch.device("cpu")))
        with streams[-1]:
            learners.append(make_learner(tmp_path, seed))
    group = LearnerGroup(learners, streams)
    group.update((0, 1))
    joint = weakref.ref(group._joint)
    group.leave(0)
    assert joint() is None
