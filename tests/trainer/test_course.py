"""Carrying out a course that is alone."""

import pytest

from trainer.loops.course import DESCEND, OTHERS, REST, UPDATE, Due, follow


class Learner:
    def __init__(self, fails: bool = False) -> None:
        self.done = []
        self._fails = fails

    def do(self, step):
        if self._fails:
            raise MemoryError("full")
        self.done.append(step)


def test_the_learner_takes_each_step_where_the_course_pauses():
    learner, seen = Learner(), []

    def course():
        for step in (UPDATE, OTHERS, REST, DESCEND):
            yield Due(learner, step)
            seen.append([*learner.done])
        return 85

    assert follow(course()) == 85
    assert seen == [[UPDATE], [UPDATE], [UPDATE], [UPDATE, DESCEND]]


def test_a_part_of_a_course_can_be_carried_out_too():
    learner = Learner()

    def part():
        yield Due(learner, UPDATE)

    assert follow(part()) == 0
    assert learner.done == [UPDATE]


def test_what_a_step_raises_is_raised_in_the_course():
    learner, other = Learner(fails=True), Learner()

    def course():
        try:
            yield Due(learner, UPDATE)
        except MemoryError:
            yield Due(other, UPDATE)  # as a run that goes back to a checkpoint
        return 3

    assert follow(course()) == 3
    assert other.done == [UPDATE]


def test_what_the_course_does_not_catch_ends_it_in_order():
    closed = []

    def course():
        try:
            yield Due(Learner(fails=True), UPDATE)
        finally:
            closed.append(True)

    with pytest.raises(MemoryError, match="full"):
        follow(course())
    assert closed == [True]
