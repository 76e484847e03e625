"""Carries out several courses in one process: advances them in turn, and their learners take steps together.

While the learners compute, the environments of all runs step. What comes out of a run does not depend on the
others: each draws from its own stream, and ends, fails or goes back to a checkpoint by itself.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from trainer.errors import TrainerError
from trainer.loops.course import DESCEND, OTHERS, REST, REST_SECONDS, Course, Due, Guarded
from trainer.loops.groups import SeedGroup, make_group
from trainer.streams import Stream

_FAILED = 1
_PATIENCE = 30.0
"""Seconds that a run waits for the others to come as far: a scheduler's signal leaves little more."""

MakeGroup = Callable[[Sequence[Guarded], Sequence[Stream]], SeedGroup]


@dataclass(eq=False)
class Seat:
    """A run among others.

    Attributes:
        course: the run.
        stream: what it draws from.
        ended: told its exit code and, if it failed, why, in lines for a person; called once.
        around: a context in which it goes on, besides its stream; entered again and again.
        learner: the run's, once it has one.
        step: what that is to do before the course goes on; `OTHERS` when it can go on, or `REST`.
        since: when it came there, by the monotonic clock.
    """

    course: Course
    stream: Stream
    ended: Callable[[int, str], None]
    around: AbstractContextManager[Any] = field(default_factory=nullcontext)
    learner: Guarded | None = None
    step: str = OTHERS
    since: float = 0.0


class Together:
    """Several courses at once.

    Args:
        seats: the runs.
        make_group: makes what takes the steps of their learners.
    """

    def __init__(self, seats: Sequence[Seat], make_group: MakeGroup = make_group) -> None:
        self._alive = list(seats)
        self._make_group = make_group
        self._group: SeedGroup | None = None
        self._places: dict[Seat, tuple[Guarded, int]] = {}
        self._look = 0.0
        self._now = 0.0
        self._waits = True

    def follow(self) -> None:
        """Carries all of them out. A fault of one ends it alone; a KeyboardInterrupt ends all."""
        try:
            while self._alive:
                self._advance()
                self._learn()
        finally:
            with ExitStack() as stack:
                for seat in self._alive:
                    stack.callback(self._close, seat)

    def _advance(self) -> None:
        """Lets each course go on that waits for no step; those that rest only now and then."""
        self._now = time.monotonic()
        if all(seat.step == REST for seat in self._alive):
            time.sleep(max(0.0, self._look - self._now))
            self._now = max(self._now, self._look)
        looks = self._now >= self._look
        if looks:
            self._look = self._now + REST_SECONDS
        for seat in [*self._alive]:
            if seat.step == OTHERS or (seat.step == REST and looks):
                self._go_on(seat, seat.course.__next__)

    def _learn(self) -> None:
        """Takes the steps that are due.

        Whoever has a batch or a rollout to learn from waits until all have, however far their runs are: from
        then on all learn at once. If that takes too long nobody waits, until they happen to meet. Within a
        rollout nobody waits either: who has learnt enough gathers the next.
        """
        due = [seat for seat in self._alive if seat.step == DESCEND]
        if not due:
            due = [seat for seat in self._alive if seat.step not in (OTHERS, REST)]
            met = all(seat.step != OTHERS for seat in self._alive)
            self._waits = met or (self._waits and all(self._now < seat.since + _PATIENCE for seat in due))
            if self._waits and not met:
                return
        for step in dict.fromkeys(seat.step for seat in due):
            self._take(step, [seat for seat in due if seat.step == step])

    def _take(self, step: str, seats: Sequence[Seat]) -> None:
        for seat in seats:
            seat.step = OTHERS
        try:
            self._make_up(seats)
            assert self._group is not None
            self._group.do(step, [self._places[seat][1] for seat in seats])
        except Exception as fault:  # it belongs to the courses, which know what it means
            self._group, self._places = None, {}  # of no use to those who go on: they make another one
            for seat in seats:
                self._go_on(seat, seat.course.throw, fault)

    def _make_up(self, seats: Sequence[Seat]) -> None:
        """Makes a group at first, and again when a run goes on with another learner."""
        if all(seat in self._places and self._places[seat][0] is seat.learner for seat in seats):
            return
        self._group, self._places = None, {}  # before a new one takes as much memory again
        seats = [seat for seat in self._alive if seat.step != REST and seat.learner is not None]
        learners = [seat.learner for seat in seats if seat.learner is not None]
        self._group = self._make_group(learners, [seat.stream for seat in seats])
        self._places = dict(zip(seats, zip(learners, count(), strict=False), strict=True))

    def _go_on(self, seat: Seat, how: Callable[..., Due], *fault: Exception) -> None:
        try:
            with seat.stream, seat.around:
                seat.learner, seat.step = how(*fault)
            seat.since = self._now
        except StopIteration as end:
            self._end(seat, end.value, "")
        except TrainerError as error:
            self._end(seat, error.exit_code, "\n  ".join(filter(None, (error.cause, error.hint))))
        except Exception:  # a fault of the program, which the other runs need not share
            self._end(seat, _FAILED, traceback.format_exc())
        else:
            if seat.step == REST or seat.learner is None:
                self._leave(seat)

    def _end(self, seat: Seat, code: int, why: str) -> None:
        self._leave(seat)
        self._alive.remove(seat)
        seat.learner = None
        seat.ended(code, why)

    def _leave(self, seat: Seat) -> None:
        place = self._places.pop(seat, None)
        if place is not None and self._group is not None:
            self._group.leave(place[1])

    def _close(self, seat: Seat) -> None:
        with seat.stream, seat.around:
            seat.course.close()
