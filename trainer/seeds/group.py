"""Trains several runs in one process: steps them phase by phase, and has their learners learn together.

The environments of all runs step while learners compute. What comes out of a run does not depend on the
others: each draws from its own stream, and ends, fails or goes back to a checkpoint by itself.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from trainer.errors import DivergedError, TrainerError
from trainer.loops.attempt import POLL_SECONDS
from trainer.loops.generators import Stream
from trainer.loops.learner import Learner
from trainer.loops.learner_group import LearnerGroup
from trainer.loops.memory import too_small
from trainer.loops.off_policy import OffPolicyRun
from trainer.loops.on_policy import OnPolicyRun
from trainer.loops.rollout_group import RolloutGroup
from trainer.loops.rollout_learner import RolloutLearner
from trainer.loops.training import TrainingRun

_FAILED = 1


@dataclass(eq=False)
class GroupedRun:
    """A run among others.

    Attributes:
        make: makes the run.
        stream: what it draws from.
        ended: told its exit code and, if it failed, why, in lines for a person; called once.
        around: a context for all that it does, besides its stream; entered again and again.
        run: the run, once it is made.
        code: its exit code, once it has ended.
    """

    make: Callable[[], TrainingRun]
    stream: Stream
    ended: Callable[[int, str], None]
    around: AbstractContextManager[Any] = field(default_factory=nullcontext)
    run: TrainingRun | None = None
    code: int | None = None

    @property
    def made(self) -> TrainingRun:
        """The run, which is made."""
        assert self.run is not None
        return self.run

    @property
    def attempt(self) -> OffPolicyRun | OnPolicyRun:
        """The run's present attempt."""
        return self.made.attempt


class SeedGroup:
    """Several runs of one recipe, which differ in their seeds.

    Args:
        runs: that are to be trained.
    """

    def __init__(self, runs: Sequence[GroupedRun]) -> None:
        self._alive = list(runs)
        self._training: list[GroupedRun] = []
        self._joint: JointLearning | None = None
        self._look = 0.0  # by the monotonic clock, at evaluations that are waited for

    def train(self) -> None:
        """Trains all of them. A fault of one ends it alone; a KeyboardInterrupt ends all."""
        try:
            self._each(self._alive, _start)  # the workers of all import at once
            self._each(self._alive, lambda run: run.attempt.begin())
            self._training = list(self._alive)
            while self._alive:
                self._end_runs()
                if self._training:
                    self._vector_step()
                elif self._alive:
                    time.sleep(POLL_SECONDS)
        finally:
            with ExitStack() as stack:
                for run in self._alive:
                    stack.callback(_close, run, KeyboardInterrupt())

    def _vector_step(self) -> None:
        """Steps every environment once, and has all runs learn what is due.

        A run with a full rollout waits until all have one, if they can learn at once: from then on they do,
        however far each is. A run that has been told to stop waits no longer.
        """
        stepping = [run for run in self._training if not run.attempt.due]
        self._each(stepping, lambda run: run.attempt.act())
        meanwhile = any(run.attempt.learns_meanwhile for run in self._training)
        if meanwhile:
            self._each(self._of(stepping), lambda run: run.attempt.catch_up())
            self._learn()
        self._each(self._of(stepping), lambda run: run.attempt.gather())
        if not meanwhile:
            joins = self._joins()
            due = [run for run in self._training if run.attempt.due]
            if len(due) == len(self._training) or not joins or any(run.attempt.stop for run in due):
                stepping += [run for run in due if run not in stepping]
                self._learn()
            else:
                self._each(due, lambda run: run.attempt.refresh_heartbeat())
        reporting = [run for run in self._of(stepping) if not run.attempt.due]
        self._each(reporting, lambda run: run.attempt.report())

    def _learn(self) -> None:
        """Has the runs that have something to learn do so, at once where they can."""
        joins = self._joins()
        due = [run for run in self._training if run.attempt.due]
        if due and joins:
            assert self._joint is not None
            try:
                self._joint.learn(due)
            except Exception as fault:
                self._fail_together(due, fault)
            return
        for run in due:
            self._each([run], lambda run: run.attempt.learn())
            if not all(run.attempt.learns_meanwhile for run in self._training):  # it may have taken long
                self._each(self._of(due), lambda run: run.attempt.refresh_heartbeat())

    def _joins(self) -> bool:
        """Returns whether the runs that train learn at once, after joining their learners if they can."""
        if self._joint is None or not self._joint.has(self._training):
            self._joint = None  # before a new one takes as much memory again
            try:
                self._joint = JointLearning(self._training)
            except Exception as fault:
                self._fail_together([*self._training], fault)
                return False
        return self._joint.possible

    def _end_runs(self) -> None:
        """Ends the runs whose training is over, and then those that wait for no evaluation any more."""
        for run in [member for member in self._training if not member.attempt.going]:
            self._leave(run)
            self._each([run], lambda run: run.attempt.end())
        if (now := time.monotonic()) < self._look:
            return
        self._look = now + POLL_SECONDS
        for run in [member for member in self._alive if member not in self._training]:
            self._each([run], _close_if_evaluated)
            if run.code is not None:
                self._end(run, run.code, "")

    def _each(self, runs: Sequence[GroupedRun], phase: Callable[[GroupedRun], None]) -> None:
        """Carries out a phase of each of these runs, with its own random numbers."""
        for run in [*runs]:
            goes_back = False
            try:
                with run.stream, run.around:
                    phase(run)
            except DivergedError as error:
                goes_back = self._go_back(run, error)
            except Exception as fault:
                self._fail(run, fault)
            if goes_back:  # not before the error has let go of the attempt that raised it
                self._each([run], _restart)

    def _go_back(self, run: GroupedRun, error: DivergedError) -> bool:
        """Lets a run go back to a checkpoint; returns whether there is one."""
        self._joint = None  # it holds the learner, whose memory is needed
        try:
            with run.stream, run.around:
                run.made.go_back(error)
        except Exception as fault:
            self._fail(run, fault)
            return False
        self._training = [member for member in self._alive if member is run or member in self._training]
        return True

    def _fail_together(self, runs: Sequence[GroupedRun], fault: Exception) -> None:
        self._joint = None  # of no use to those who go on: they make another one
        for run in runs:
            self._fail(run, fault)

    def _fail(self, run: GroupedRun, fault: Exception) -> None:
        self._leave(run)
        try:
            _close(run, fault)
        except Exception as later:
            fault = later
        if isinstance(fault, TrainerError):
            self._end(run, fault.exit_code, "\n  ".join(filter(None, (fault.cause, fault.hint))))
        else:  # a fault of the program, which the other runs need not share
            self._end(run, _FAILED, "".join(traceback.format_exception(fault)))

    def _end(self, run: GroupedRun, code: int, why: str) -> None:
        self._alive.remove(run)
        run.run = None
        run.ended(code, why)

    def _leave(self, run: GroupedRun) -> None:
        """Lets a run train no more."""
        if run in self._training:
            self._training.remove(run)
            if self._joint is not None:
                self._joint.leave(run)

    def _of(self, runs: Sequence[GroupedRun]) -> list[GroupedRun]:
        """Returns those of some runs that still train."""
        return [run for run in runs if run in self._training]


class JointLearning:
    """Runs that learn at once, where their learners can be joined.

    Args:
        runs: of one recipe.

    Attributes:
        possible: whether they can; else each has to learn by itself.
    """

    def __init__(self, runs: Sequence[GroupedRun]) -> None:
        self._numbers = {run: number for number, run in enumerate(runs)}
        learners = [run.attempt.learner for run in runs]
        self._learners: list[Learner | RolloutLearner | None] = [*learners]
        self._group = join_learners(learners, [run.stream for run in runs])
        self.possible = self._group is not None

    def has(self, runs: Sequence[GroupedRun]) -> bool:
        """Returns whether these runs are among them, each with the learner that it had."""
        return all(
            run in self._numbers and self._learners[self._numbers[run]] is run.attempt.learner for run in runs
        )

    def leave(self, run: GroupedRun) -> None:
        """Forgets a run, whose learner nobody is to hold any more."""
        if run in self._numbers:
            self._learners[self._numbers[run]] = None
            if self._group is not None:
                self._group.leave(self._numbers[run])

    def learn(self, runs: Sequence[GroupedRun]) -> None:
        """Learns what is due in these runs.

        Raises:
            TrainerError: the device's memory is too small. None of these runs can go on.
        """
        attempts = {self._numbers[run]: run.attempt for run in runs}
        with ExitStack() as stack:
            for attempt in attempts.values():
                stack.enter_context(attempt.learning())
            if isinstance(self._group, LearnerGroup):
                updating = {key: run for key, run in attempts.items() if isinstance(run, OffPolicyRun)}
                while due := [number for number, run in updating.items() if run.due]:
                    self._group.update(due)
                    for number in due:
                        updating[number].count_update()
            elif isinstance(self._group, RolloutGroup):
                full = {key: run for key, run in attempts.items() if isinstance(run, OnPolicyRun)}
                left = [run.left for run in full.values()]
                self._group.learn([*full], left, lambda number, updates: full[number].count_updates(updates))


def join_learners(
    learners: Sequence[Learner | RolloutLearner], streams: Sequence[Stream]
) -> LearnerGroup | RolloutGroup | None:
    """Returns a group that learns faster than these learners do one by one; None where there is none.

    Raises:
        TrainerError: the device's memory is too small.
    """
    on_policy = [learner for learner in learners if isinstance(learner, RolloutLearner)]
    if 1 < len(on_policy) == len(learners):
        if RolloutGroup.fit(on_policy):
            try:
                return RolloutGroup(on_policy, streams)
            except torch.OutOfMemoryError as fault:
                raise too_small(fault) from fault
        joinable = all(learner.agent.joins for learner in on_policy)
        why = "runs that differ in more than the seed" if joinable else "runs of multi-task PPO"
        for learner in on_policy:
            learner.slower = f"{why} learn one after the other, not at once"
    off_policy = [learner for learner in learners if isinstance(learner, Learner)]
    if len(off_policy) == len(learners) > 1 and off_policy[0].device.type == "cuda":
        if all(learner.agent.joins for learner in off_policy):
            return LearnerGroup(off_policy, streams)
        for alone in off_policy:
            alone.slower = f"runs of {alone.entry.label} learn one after the other, not at once"
    return None


def _start(run: GroupedRun) -> None:
    run.run = run.make()
    run.run.start()


def _close_if_evaluated(run: GroupedRun) -> None:
    """Closes a run that waits for no evaluation any more."""
    if not run.attempt.is_waiting():
        code = run.attempt.exit_code()
        run.made.close(code)
        run.code = code


def _restart(run: GroupedRun) -> None:
    run.made.start()
    run.attempt.begin()


def _close(run: GroupedRun, fault: BaseException | None) -> None:
    """Ends whatever a run has begun."""
    if run.run is not None:
        with run.stream, run.around:
            run.run.__exit__(type(fault) if fault else None, fault, None)
