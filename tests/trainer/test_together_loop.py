"""Who goes on and who waits, with courses made of nothing but pauses."""

import contextlib

import pytest
import torch

from trainer.errors import TrainerError, WorkerError
from trainer.loops import together as loop
from trainer.loops.course import DESCEND, ESTIMATE, OTHERS, REST, UPDATE, Due
from trainer.loops.together import Seat, Together
from trainer.streams import Stream

pytestmark = pytest.mark.slow


class Scene:
    """Carries out courses that are told by their pauses, and notes what happens.

    A pause is a step, an exception to raise, `another`: from there on the learner is another one, or `none`:
    for this pause there is none.
    """

    def __init__(self, *stories, fault=None) -> None:
        self.steps = []
        self.events = []
        self.groups = []
        self.ended = {}
        self._fault = fault
        seats = [Seat(self._course(*it), Stream(torch.device("cpu")), self._end(it[0])) for it in stories]
        self.together = Together(seats, self._make_group)

    def _course(self, name, pauses, code=0):
        learner = name
        try:
            for pause in pauses:
                if isinstance(pause, BaseException):
                    raise pause
                if pause == "another":
                    learner += "'"
                elif pause == "none":
                    yield Due(None, OTHERS)
                else:
                    yield Due(learner, pause)
        finally:
            self.events.append(f"{name} is over")
        return code

    def _end(self, name):
        def end(code, why):
            self.ended[name] = code, why

        return end

    def _make_group(self, learners, streams):
        assert len(learners) == len(streams)
        self.groups.append(learners)
        return self

    def do(self, step, who):
        self.steps.append((step, "".join(self.groups[-1][number] for number in who)))
        if self._fault:
            raise self._fault

    def leave(self, number):
        self.events.append(f"{self.groups[-1][number]} leaves")

    def follow(self):
        self.together.follow()
        return self


def test_learners_that_are_as_far_step_together_and_a_run_that_ends_leaves_the_others():
    scene = Scene(
        ("a", [OTHERS, UPDATE, UPDATE, UPDATE]), ("b", [OTHERS, UPDATE]), ("c", [OTHERS, UPDATE, UPDATE], 85)
    ).follow()
    assert scene.steps == [(UPDATE, "abc"), (UPDATE, "ac"), (UPDATE, "a")]
    assert scene.groups == [["a", "b", "c"]]
    assert scene.events == ["b is over", "b leaves", "c is over", "c leaves", "a is over", "a leaves"]
    assert scene.ended == {"a": (0, ""), "b": (0, ""), "c": (85, "")}


def test_a_batch_waits_for_those_who_are_behind():
    """As after a resumption of some: one is in its warm-up, one earns its updates at other steps."""
    scene = Scene(
        ("a", [OTHERS, UPDATE, UPDATE]),
        ("b", [*[OTHERS] * 9, UPDATE, UPDATE]),
        ("c", [*[OTHERS] * 2, UPDATE, OTHERS, UPDATE]),
    ).follow()
    assert scene.steps == [(UPDATE, "abc"), (UPDATE, "abc")]


def test_nobody_waits_for_ever(monkeypatch):
    monkeypatch.setattr(loop, "_PATIENCE", 0.0)
    scene = Scene(
        ("a", [UPDATE, UPDATE, UPDATE, UPDATE]), ("b", [OTHERS, OTHERS, UPDATE, OTHERS, OTHERS, UPDATE])
    ).follow()
    assert scene.steps[0] == (UPDATE, "a")
    assert (UPDATE, "ab") in scene.steps  # where they meet
    assert "".join(who for _, who in scene.steps).count("a") == 4


def test_who_has_learnt_enough_from_a_rollout_gathers_the_next_one_and_waits_there():
    whole = [OTHERS, ESTIMATE, DESCEND, DESCEND, DESCEND, OTHERS, OTHERS, ESTIMATE, DESCEND]
    short = [OTHERS, ESTIMATE, DESCEND, OTHERS, OTHERS, ESTIMATE, DESCEND]
    scene = Scene(("a", whole), ("b", short), ("c", whole)).follow()
    assert scene.steps == [
        (ESTIMATE, "abc"),
        (DESCEND, "abc"),
        (DESCEND, "ac"),
        (DESCEND, "ac"),
        (ESTIMATE, "abc"),
        (DESCEND, "abc"),
    ]


def test_who_rests_holds_nobody_up():
    scene = Scene(
        ("a", [UPDATE, REST, REST]), ("b", [UPDATE, OTHERS, UPDATE, REST, REST]), ("c", [REST])
    ).follow()
    assert scene.steps == [(UPDATE, "ab"), (UPDATE, "b")]
    assert {name: code for name, (code, _) in scene.ended.items()} == {"a": 0, "b": 0, "c": 0}
    assert sorted(scene.events) == ["a is over", "a leaves", "b is over", "b leaves", "c is over"]


def test_a_run_that_goes_back_to_a_checkpoint_joins_a_new_group_with_those_who_still_learn():
    scene = Scene(
        ("a", [UPDATE, UPDATE]),
        ("b", [UPDATE, "another", OTHERS, UPDATE]),
        ("c", [UPDATE, REST]),
        ("d", [UPDATE]),
    ).follow()
    assert scene.steps == [(UPDATE, "abcd"), (UPDATE, "ab'")]
    assert scene.groups == [["a", "b", "c", "d"], ["a", "b'"]]


def test_a_learner_is_let_go_before_the_next_one_is_made(monkeypatch):
    monkeypatch.setattr(loop, "_PATIENCE", 0.0)  # so that the others go on meanwhile
    scene = Scene(
        ("a", [UPDATE, UPDATE, UPDATE, UPDATE, UPDATE]),
        ("b", [UPDATE, "none", "another", OTHERS, UPDATE]),
        ("c", [UPDATE, "another", UPDATE, UPDATE, UPDATE, UPDATE]),
    ).follow()
    assert "b leaves" in scene.events
    assert scene.groups[1:] == [["a", "c'"], ["a", "b'", "c'"]]


def test_a_fault_ends_one_run_and_is_told():
    scene = Scene(
        ("a", [UPDATE, WorkerError("a worker died", hint="look at dmesg")]),
        ("b", [UPDATE, UPDATE, UPDATE]),
        ("c", [OTHERS, ZeroDivisionError("a bug")]),
    ).follow()
    assert scene.steps == [(UPDATE, "ab"), (UPDATE, "b"), (UPDATE, "b")]
    assert scene.ended["a"] == (1, "a worker died\n  look at dmesg")
    assert scene.ended["b"] == (0, "")
    code, why = scene.ended["c"]
    assert code == 1
    assert why.startswith("Traceback")
    assert "ZeroDivisionError: a bug" in why


def test_what_a_step_raises_is_raised_in_all_runs_that_took_it():
    scene = Scene(("a", [UPDATE]), ("b", [UPDATE]), fault=TrainerError("too small")).follow()
    assert scene.ended == {"a": (1, "too small"), "b": (1, "too small")}
    assert scene.events == ["a is over", "b is over"], "nobody leaves a group whose memory may be full"


def test_an_interruption_ends_all_of_them_in_order():
    scene = Scene(("a", [OTHERS, OTHERS, UPDATE]), ("b", [OTHERS, KeyboardInterrupt()]))
    with pytest.raises(KeyboardInterrupt):
        scene.follow()
    assert scene.events == ["b is over", "a is over"]
    assert scene.ended == {}


def test_each_course_draws_from_its_own_stream_also_when_it_is_ended():
    drawn = {}

    def course(name, pauses):
        torch.manual_seed(len(name))
        drawn[name] = [float(torch.rand(()))]
        try:
            for _ in range(pauses):
                yield Due(name, OTHERS)
                drawn[name].append(float(torch.rand(())))
            raise KeyboardInterrupt
        finally:
            drawn[name].append(float(torch.rand(())))

    def alone(name, draws):
        torch.manual_seed(len(name))
        return [float(torch.rand(())) for _ in range(draws)]

    expected = {"a": alone("a", 4), "bb": alone("bb", 4)}
    before = torch.get_rng_state()
    cpu = torch.device("cpu")
    seats = [Seat(course("a", 9), Stream(cpu), print), Seat(course("bb", 2), Stream(cpu), print)]
    with contextlib.suppress(KeyboardInterrupt):
        Together(seats).follow()
    assert drawn == expected
    assert torch.equal(torch.get_rng_state(), before)
