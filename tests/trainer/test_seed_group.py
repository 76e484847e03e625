"""Who steps, learns, waits and ends among the runs of a process, with runs that do nothing but say so."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from trainer.errors import DivergedError, TrainerError, WorkerError
from trainer.loops.generators import Stream
from trainer.loops.on_policy import OnPolicyRun
from trainer.loops.rollout_group import RolloutGroup
from trainer.loops.training import TrainingRun
from trainer.preemption import StopSignals
from trainer.seeds import group as seed_group
from trainer.seeds.group import GroupedRun, SeedGroup

Story = Sequence[Any]
CPU = torch.device("cpu")


class Attempt(OnPolicyRun):
    """Makes a vector step for each word of a story.

    A word is `step`; `full`, after which the rollout is full; `stop`, the same with a signal; a number of
    looks at an evaluation that the end waits for; or an exception that the step raises.
    """

    def __init__(self, name: str, story: Iterable[Any], scene: Scene) -> None:
        self.learner: Any = name
        self.stop = StopSignals()
        self._story, self._scene = story if isinstance(story, list) else list(story), scene
        self._full = False
        self._looks = 0

    @property
    def going(self) -> bool:
        return self._full or bool(self._story and not isinstance(self._story[0], int))

    @property
    def due(self) -> bool:
        return self._full

    @property
    def left(self) -> float:
        return 0.5

    def begin(self) -> None:
        self._scene.say(f"{self.learner} begins")

    def act(self) -> None:
        self._scene.say(f"{self.learner} acts")

    def gather(self) -> None:
        word = self._story.pop(0)
        if isinstance(word, BaseException):
            raise word
        self._full = word in ("full", "stop")
        if word == "stop":
            self.stop.take(10)

    def learn(self) -> None:
        self._full = False
        self._scene.learnt.append(self.learner)

    def report(self) -> None:
        self._scene.say(f"{self.learner} reports")

    def refresh_heartbeat(self) -> None:
        self._scene.say(f"{self.learner} waits")

    def learning(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def end(self) -> None:
        self._looks = self._story.pop(0) if self._story else 0

    def is_waiting(self) -> bool:
        self._looks -= 1
        return self._looks >= 0

    def exit_code(self) -> int:
        return 85 if self.stop else 0


class Run(TrainingRun):
    """A run whose attempts have a story each; `DivergedError` leads from one to the next."""

    def __init__(self, name: str, stories: Sequence[Story], scene: Scene) -> None:
        self._name, self._stories, self._scene = name, list(stories), scene
        self._attempt: Any = None
        self.closed = False

    def start(self) -> None:
        self._attempt = Attempt(self._name, [*self._stories.pop(0)], self._scene)

    def go_back(self, error: DivergedError) -> None:
        self._scene.say(f"{self._name} goes back")
        self._attempt, self._name = None, f"{self._name}'"
        if not self._stories:
            raise error

    def close(self, code: int) -> None:
        self._scene.say(f"{self._name} is closed with {code}")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._scene.say(f"{self._name} is over: {type(error).__name__}")


class Group(RolloutGroup):
    """Notes who learns at once."""

    def __init__(self, names: Sequence[str], scene: Scene) -> None:
        self.names, self._scene = list(names), scene

    def learn(self, who: Sequence[int], left: Sequence[float], count: Callable[[int, int], None]) -> None:
        assert len(who) == len(left)
        names = [self.names[number] for number in who]
        self._scene.learnt.append("".join(names))
        if self._scene.fault:
            raise self._scene.fault
        for attempt in self._scene.attempts():
            if attempt.learner in names:
                attempt._full = False

    def leave(self, number: int) -> None:
        self._scene.say(f"{self.names[number]} leaves")


class Scene:
    """Trains runs that are told by their stories, and notes what happens.

    Args:
        runs: name and stories of each; one for an attempt.
        joins: whether they learn at once.
        fault: raised when they do.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        **runs: Sequence[Story],
    ) -> None:
        self.learnt: list[str] = []
        self.events: list[str] = []
        self.groups: list[list[str]] = []
        self.ended: dict[str, tuple[int, str]] = {}
        self.fault: Exception | None = None
        self.joins = True
        monkeypatch.setattr(seed_group, "join_learners", self._join)
        monkeypatch.setattr(seed_group, "POLL_SECONDS", 0.0)
        self._runs = [
            GroupedRun(self._maker(name, stories), Stream(CPU), self._ender(name))
            for name, stories in runs.items()
        ]

    def train(self) -> Scene:
        SeedGroup(self._runs).train()
        return self

    def say(self, text: str) -> None:
        self.events.append(text)

    def attempts(self) -> list[Any]:
        return [run.attempt for run in self._runs if run.run is not None]

    def said(self, *words: str) -> list[str]:
        """The events with one of these words."""
        return [event for event in self.events if any(word in event for word in words)]

    def _maker(self, name: str, stories: Sequence[Story]) -> Callable[[], TrainingRun]:
        return lambda: Run(name, stories, self)

    def _ender(self, name: str) -> Callable[[int, str], None]:
        def ended(code: int, why: str) -> None:
            assert name not in self.ended
            self.ended[name] = code, why

        return ended

    def _join(self, learners: Sequence[Any], streams: Sequence[Stream]) -> Group | None:
        assert len(learners) == len(streams)
        if not self.joins:
            return None
        self.groups.append(list(learners))
        return Group(learners, self)


def test_all_act_before_one_gathers_and_a_run_that_ends_leaves_the_others(monkeypatch):
    scene = Scene(monkeypatch, a=[["full"] * 3], b=[["full"]], c=[["full"] * 2]).train()
    assert scene.events[:6] == ["a begins", "b begins", "c begins", "a acts", "b acts", "c acts"]
    assert scene.learnt == ["abc", "ac", "a"]
    assert scene.groups == [["a", "b", "c"]]
    assert scene.said("leaves", "closed") == [
        *(
            "b leaves",
            "b is closed with 0",
            "c leaves",
            "c is closed with 0",
            "a leaves",
            "a is closed with 0",
        ),
    ]
    assert scene.ended == dict.fromkeys("abc", (0, ""))


def test_a_full_rollout_waits_for_those_who_are_behind(monkeypatch):
    """As after a resumption of some in the middle of a rollout."""
    scene = Scene(
        monkeypatch,
        a=[["full", "step", "full"]],
        b=[["step", "step", "full", "step", "full"]],
    ).train()
    assert scene.learnt == ["ab", "ab"]
    assert scene.said("waits") == ["a waits"] * 2, "with a fresh heartbeat"
    assert len(scene.said("a acts")) == len(scene.said("a reports")) == 3
    assert len(scene.said("b acts")) == len(scene.said("b reports")) == 5


def test_a_run_that_is_told_to_stop_waits_no_longer(monkeypatch):
    scene = Scene(monkeypatch, a=[["stop"]], b=[["step"] * 3 + ["full"]]).train()
    assert scene.learnt == ["a", "b"]
    assert scene.ended == {"a": (85, ""), "b": (0, "")}


def test_nobody_waits_where_each_learns_by_itself(monkeypatch):
    scene = Scene(monkeypatch, a=[["full", "full"]], b=[["step", "full"]])
    scene.joins = False
    scene.train()
    assert scene.learnt == ["a", "a", "b"]
    assert scene.said("acts") == ["a acts", "b acts"] * 2
    assert {*scene.said("waits")} == {"a waits", "b waits"}, "while another one learns, heartbeats stay fresh"


def test_a_run_that_waits_for_its_evaluation_holds_nobody_up(monkeypatch):
    scene = Scene(monkeypatch, a=[["full", 3]], b=[["full", "full", "full"]], c=[[5]]).train()
    assert scene.learnt == ["ab", "b", "b"]
    assert {name: code for name, (code, _) in scene.ended.items()} == {"a": 0, "b": 0, "c": 0}
    assert list(scene.ended) == ["b", "a", "c"]


def test_a_run_that_goes_back_to_a_checkpoint_joins_a_new_group_with_those_who_still_train(monkeypatch):
    scene = Scene(
        monkeypatch,
        a=[["full", "full", "full"]],
        b=[["full", DivergedError("not finite")], ["full"]],
        c=[["full"]],
    ).train()
    assert scene.learnt == ["abc", "ab'", "a"]
    assert scene.groups == [["a", "b", "c"], ["a", "b'"]]
    assert {name: code for name, (code, _) in scene.ended.items()} == {"a": 0, "b": 0, "c": 0}


def test_a_run_without_a_way_back_ends_alone(monkeypatch):
    scene = Scene(monkeypatch, a=[["full", "full"]], b=[["full", DivergedError("not finite")]]).train()
    assert scene.learnt == ["ab", "a"]
    assert scene.ended == {"b": (1, "not finite"), "a": (0, "")}


def test_a_fault_ends_one_run_and_is_told(monkeypatch):
    scene = Scene(
        monkeypatch,
        a=[["full", WorkerError("a worker died", hint="look at dmesg")]],
        b=[["full"] * 3],
        c=[[ZeroDivisionError("a bug")]],
    ).train()
    assert scene.learnt == ["ab", "b", "b"]
    assert scene.said("over") == ["c is over: ZeroDivisionError", "a is over: WorkerError"]
    assert scene.ended["a"] == (1, "a worker died\n  look at dmesg")
    assert scene.ended["b"] == (0, "")
    code, why = scene.ended["c"]
    assert code == 1
    assert why.startswith("Traceback")
    assert "ZeroDivisionError: a bug" in why


def test_a_fault_of_learning_at_once_ends_all_that_took_part(monkeypatch):
    scene = Scene(monkeypatch, a=[["full"]], b=[["full"]])
    scene.fault = TrainerError("too small")
    scene.train()
    assert scene.ended == {"a": (1, "too small"), "b": (1, "too small")}
    assert scene.said("over") == ["a is over: TrainerError", "b is over: TrainerError"]
    assert not scene.said("leaves"), "nobody leaves a group whose memory may be full"


def test_a_fault_of_joining_ends_those_that_were_to_be_joined(monkeypatch):
    scene = Scene(monkeypatch, a=[["full"]], b=[["full"]])
    monkeypatch.setattr(seed_group, "join_learners", Mock(side_effect=TrainerError("too small to join")))
    scene.train()
    assert scene.ended == {"a": (1, "too small to join"), "b": (1, "too small to join")}


class Fresh:
    """A run with an attempt."""

    def __init__(self, attempt: Any) -> None:
        self.attempt, self.stream = attempt, Stream(CPU)


@pytest.mark.parametrize("joins", [True, False])
def test_nobody_holds_the_learner_of_a_run_that_has_ended(monkeypatch, joins):
    class Held:
        """A learner."""

    held = [Held(), Held()]
    runs: list[Any] = [Fresh(SimpleNamespace(learner=each)) for each in held]
    group = SimpleNamespace(leave=lambda number: None) if joins else None
    monkeypatch.setattr(seed_group, "join_learners", lambda *_: group)
    joint = seed_group.JointLearning(runs)
    gone = weakref.ref(held[0])
    joint.leave(runs[0])
    del runs[0].attempt, held[0]
    gc.collect()
    assert gone() is None
    assert joint.has(runs[1:])


def test_an_interruption_ends_all_of_them_in_order(monkeypatch):
    scene = Scene(monkeypatch, a=[["step"] * 9], b=[["step", KeyboardInterrupt()]])
    with pytest.raises(KeyboardInterrupt):
        scene.train()
    assert scene.said("over") == ["b is over: KeyboardInterrupt", "a is over: KeyboardInterrupt"]
    assert scene.ended == {}


def test_each_run_draws_from_its_own_stream_also_when_it_is_ended(monkeypatch):
    drawn: dict[str, list[float]] = {"a": [], "b": []}

    def note(attempt: Any) -> None:
        drawn[attempt.learner].append(float(torch.rand(())))

    def seeded(run: Any, inner=Run.start) -> None:
        torch.manual_seed(ord(run._name))
        inner(run)

    monkeypatch.setattr(Attempt, "act", note)
    monkeypatch.setattr(Attempt, "report", note)
    monkeypatch.setattr(Run, "start", seeded)
    monkeypatch.setattr(Run, "__exit__", lambda run, *_: note(run._attempt))
    before = torch.get_rng_state()
    with contextlib.suppress(KeyboardInterrupt):
        Scene(monkeypatch, a=[["step"] * 9], b=[["step", "step", KeyboardInterrupt()]]).train()
    for name, found in drawn.items():
        torch.manual_seed(ord(name))
        assert found == [float(torch.rand(())) for _ in found]
    assert [len(found) for found in drawn.values()] == [6, 6]
    torch.set_rng_state(before)
