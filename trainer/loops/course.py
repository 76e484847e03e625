"""A run as a course: a generator that pauses wherever its learner has something to do, or others could.

So one process can carry out one run, or many in turn whose learners then take their steps together.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import closing
from typing import NamedTuple, Protocol

from torch import Tensor

UPDATE = "update"
"""Of a learner off policy: draw a batch and learn from it."""
ESTIMATE = "estimate"
"""Of a learner on policy: look at the whole rollout."""
DESCEND = "descend"
"""Of a learner on policy: learn from the batch chosen."""
OTHERS = ""
"""No learner's step: the environments are stepping, which leaves time for others."""
REST = "rest"
"""No learner's step: there is nothing to do before an evaluation has been played."""

REST_SECONDS = 0.05


class Guarded(Protocol):
    """What a run asks of a learner."""

    losses: dict[str, Tensor]
    """What the last step that learnt has returned."""

    @property
    def note(self) -> str:
        """Why updates are slower than they could be; empty where there is nothing to say."""

    @property
    def troubled(self) -> bool:
        """Whether the last updates were skipped, one after the other."""

    def shared(self) -> list[Tensor]:
        """Returns what is the same on every rank, to the bit."""

    def check(self) -> None:
        """Raises `DivergedError` if learning has come to an end."""

    def do(self, step: str) -> None:
        """Takes a step, which is one of those above; what comes of it lies in the learner."""

    def release(self) -> None:
        """Drops what was captured, without waiting for the device: the run ends, in whatever way."""


class Due(NamedTuple):
    """Where a course pauses.

    Attributes:
        learner: the run's. Another one once the run has gone back to a checkpoint, and None just before that:
            nobody is to hold the old one then, for the new one needs its memory on the device.
        step: what it is to do before the course goes on; or `OTHERS`, or `REST`.
    """

    learner: Guarded | None
    step: str


Course = Generator[Due, None, int]
"""A run, or a part of one; returns its exit code."""
Pauses = Generator[Due, None, None]


def follow(course: Generator[Due, None, int | None]) -> int:
    """Carries out a course that is alone; returns what it returns.

    What a learner's step raises is raised where the course pauses.
    """
    with closing(course):
        try:
            learner, step = next(course)
            while True:
                try:
                    if step == REST:
                        time.sleep(REST_SECONDS)
                    elif step != OTHERS:
                        assert learner is not None
                        learner.do(step)
                except BaseException as error:
                    learner, step = course.throw(error)
                    continue
                learner, step = next(course)
        except StopIteration as end:
            return end.value or 0
