"""One attempt at a training run: what every loop does besides acting and learning."""

from __future__ import annotations

import time
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Self

from trainer.checkpoint.model import digest, save_final
from trainer.envs.vector import StepOutcome
from trainer.errors import DivergedError, TrainerError, WorkerError
from trainer.loops.checkpointed import AnyLearner, CheckpointedRun
from trainer.preemption import StoppedError

POLL_SECONDS = 0.05
"""Seconds between two looks at an evaluation that a finished run waits for."""
_MOST_SKIPPED = 100
"""Updates in a row that may be skipped because their numbers are not finite."""
_ENOUGH = 2
"""Evaluations in a row that must reach `stop_at`."""
_MISSED, _REACHED = 1, 2
_WORKER_LOST = 1000
"""Sent to the other ranks in the place of a signal's number."""


def crossed(interval: int, before: int, now: int) -> bool:
    """Returns whether a multiple of the interval lies in (before, now]; never for an interval of 0."""
    return interval > 0 and now // interval > before // interval


class TrainingAttempt(CheckpointedRun[AnyLearner]):
    """One attempt at a run.

    Use as a context manager, which ends the workers; where a worker was lost it first writes a checkpoint of
    everything but the vector step that failed.

    Each rank of a run makes its own, with its share of the environments, and comes to the same counters,
    networks and decisions at every vector step.

    `train` is the whole attempt. Several runs in one process are driven by `trainer.seeds.group` instead,
    phase by phase: `begin`; `act`, `catch_up`, `learn`, `gather` and `report` while `going`; `end`; and
    `exit_code` once not `is_waiting`.
    """

    _begun = _stopping = False
    _evaluated = (-1, 0)
    """The environment steps and episodes of the last evaluation."""
    _phase = "train"
    _stepping = False
    """Whether it is within a vector step."""

    def train(self) -> int:
        """Trains to the last step, or until a signal; returns the exit code of the run.

        Raises:
            WorkerError: an environment worker died or hangs.
            DivergedError: the updates give numbers that are not finite.
            TrainerError: the final model cannot be written, or the device's memory is too small.
        """
        self.begin()
        while self.going:
            self.step()
            self.report()
        self.end()
        while self.is_waiting():
            time.sleep(POLL_SECONDS)
        return self.exit_code()

    def begin(self) -> None:
        """Starts the environments, or continues their episodes; a signal ends that at once."""
        self._said = {""}
        self._reported = self._progress.step
        self._logged = (time.perf_counter(), self._progress.step, self._progress.updates)
        self._telemetry.heartbeat(step=self._progress.step, updates=self._progress.updates, phase="start")
        self._evaluations.load_state_dict(self._unfinished)
        try:
            # workers import for seconds; with other ranks all stop at the same step, or none
            with self.stop.at_once() if self._ranks.size == 1 else nullcontext():
                if self._environments is not None:
                    self._vector.restore(self._environments["states"])
                else:
                    self._vector.reset(self._schedule.first())
        except StoppedError:
            self._stopping = True
            return
        self._agree()
        self._begun = True
        if not self._stopping:
            self._judge()

    @property
    def going(self) -> bool:
        """Whether there are vector steps to make."""
        return not (self._over() or self._stopping)

    @abstractmethod
    def step(self) -> None:
        """Steps every environment once, and learns what is due."""

    @abstractmethod
    def act(self) -> None:
        """Chooses the actions and has the environments step."""

    def catch_up(self) -> None:
        """Does what the vector step before has left for the time in which the environments step: nothing."""

    @property
    @abstractmethod
    def due(self) -> bool:
        """Whether there is something to learn now."""

    @abstractmethod
    def learn(self) -> None:
        """Learns what is due."""

    @abstractmethod
    def gather(self) -> None:
        """Waits for the environments and keeps what the vector step brought."""

    def learning(self) -> AbstractContextManager[None]:
        """Times what happens within as learning."""
        return self._telemetry.clock("learn")

    def refresh_heartbeat(self) -> None:
        """Keeps the heartbeat fresh while other runs of the process catch up."""
        self._telemetry.heartbeat()

    def report(self) -> None:
        """Logs, evaluates and saves what is due after a vector step."""
        settings, before, now = self._settings, self._reported, self._progress.step
        self._reported, self._stepping = now, False
        self._tell()
        if crossed(settings.log_every, before, now):
            self._log()
        if self._over():
            return  # the end has its own evaluation and checkpoint
        if crossed(settings.eval_every, before, now):
            self._evaluate(settings.eval_episodes)
            self._progress.judging = self._counts()
            self._judge()
        if self.going and crossed(settings.checkpoint_every, before, now):
            self._save()

    def _tell(self) -> None:
        """Says where the run is, and what has come in from environments and evaluations."""
        if self._vector.notes:
            for note in self._vector.take_notes():
                self._say(note)
        progress = self._progress
        self._telemetry.heartbeat(step=progress.step, updates=progress.updates, phase=self._phase)
        if self._settings.eval_every:
            self._evaluations.collect()

    def _pauses(self) -> bool:
        """Returns whether the vector step that has been made is followed by anything but the next one."""
        settings, before, now = self._settings, self._reported, self._progress.step
        intervals = settings.log_every, settings.eval_every, settings.checkpoint_every
        return not self.going or any(crossed(interval, before, now) for interval in intervals)

    def end(self) -> None:
        """Writes the last checkpoint, and after the last step the final model, whose evaluation begins."""
        self._say_slower()
        if not self._begun:  # what there is to resume from is as it was
            assert self.stop.received is not None
            self._say(f"{self.stop.received.name} received: stopping before the first step")
        elif self._over():
            self._finish()
            if self._ranks.writes and self._evaluated != (self._progress.step, self._settings.final_episodes):
                self._evaluate(self._settings.final_episodes)
        else:
            assert self.stop.received is not None
            if self._ranks.writes:
                self._say(f"{self.stop.received.name} received: writing a checkpoint and stopping")
            self._save()
            self._ranks.part()

    def is_waiting(self) -> bool:
        """Records what has been evaluated; returns whether the end of the run waits for more."""
        return self._over() and self._ranks.writes and self._evaluations.unfinished()

    def exit_code(self) -> int:
        """Returns the exit code of the run, which has ended."""
        if not self._over():
            return self.stop.exit_code
        if not self._ranks.writes:
            return 0
        if self.stop:
            return self.stop.exit_code
        self._telemetry.heartbeat(step=self._progress.step, phase="done")
        return 0

    @abstractmethod
    def _row(self) -> dict[str, Any]:
        """Returns the training metrics since the last call."""

    def _finish(self) -> None:
        """Writes the last checkpoint and, on rank 0, the final model.

        Raises:
            DivergedError: the last updates were skipped.
            TrainerError: the model cannot be written.
        """
        self._check()
        # before the checkpoint: should the last evaluation be interrupted, these are not to be had again
        self._evaluations.note(self._progress.step, self._look)
        self._save()
        self._ranks.part()
        if not self._ranks.writes:
            return
        learnt = self.learner.agent.state_dict()
        try:
            save_final(self._settings.run_dir, self._about(), learnt)
        except OSError as error:
            raise TrainerError(f"the final model cannot be written: {error}") from error
        self._say(f"the parameters of the final model have the sha256 {digest(learnt)}")

    def _check(self) -> None:
        """Looks whether learning has come to an end, and whether an environment is to blame.

        Raises:
            DivergedError: update after update was skipped.
        """
        in_a_row = int(self.learner.agent.skipped[1])
        if in_a_row < _MOST_SKIPPED:
            return
        cause = f"{in_a_row} updates in a row had a loss or gradient that is not finite"
        hint = "a lower learning rate or --set max_grad_norm=1.0 (with --unlock) may help"
        if self._vector.spoilt:
            cause += f": {self._vector.spoilt[0]}"
            hint = "an environment must return finite values: correct it, or end the episode there"
        raise DivergedError(cause, hint=hint)

    def _evaluate(self, episodes: int) -> None:
        """Has the policy, as it is now, evaluated."""
        with self._telemetry.clock("evaluate"):
            self._evaluations.submit(self._progress.step, episodes, self._look)
        self._evaluated = (self._progress.step, episodes)

    def _counts(self) -> bool:
        """Returns whether an evaluation now is to be compared with `stop_at`: of the same policy, one is."""
        progress = self._progress
        undecided = self._settings.stop_at is not None and progress.reached < _ENOUGH
        return undecided and progress.updates > progress.judged

    def _judge(self) -> None:
        """Waits for the last evaluation if `stop_at` is to be compared with it; the run may then be over.

        All ranks come to the same verdict at the same vector step. A signal ends the waiting: the evaluation
        is then judged when the run is resumed, before its next step.
        """
        progress, stop_at = self._progress, self._settings.stop_at
        if not progress.judging or stop_at is None:
            return
        verdict = 0
        with self._telemetry.clock("evaluate"):
            if self._ranks.writes and self._evaluations.finish():
                level = self._evaluations.level
                verdict = _REACHED if level is not None and level >= stop_at else _MISSED
            verdict = self._ranks.most(verdict)
        if not verdict:
            self._agree()
            return
        progress.judging, progress.judged = False, progress.updates
        progress.reached = progress.reached + 1 if verdict == _REACHED else 0
        if progress.reached == _ENOUGH and self._ranks.writes:
            self._say(f"two evaluations in a row reached {stop_at:g}: training is over")

    def _outcome(self) -> StepOutcome:
        """Returns what the vector step has led to, when all ranks have theirs.

        Raises:
            WorkerError: a worker of this rank or of another one died or hangs.
        """
        try:
            outcome = self._vector.wait()
        except WorkerError:
            self._ranks.most(_WORKER_LOST)  # the others wait in `_agree`
            raise
        self._agree()
        return outcome

    def _agree(self) -> None:
        """Has all ranks stop at the same vector step, whichever of them has received a signal.

        Raises:
            WorkerError: another rank has lost an environment worker.
        """
        number = int(self.stop.received or 0) if self.stop else 0
        if self._ranks.size > 1:
            number = self._ranks.most(number)
        if number == _WORKER_LOST:
            raise WorkerError("another rank has lost an environment worker; see that rank's message")
        if number:
            self.stop.take(number)
            self._stopping = True

    def _notes(self) -> set[str]:
        """Returns what is slower than it could be."""
        return {self.learner.note}

    def _say_slower(self) -> None:
        """Says what is slower than it could be, each once."""
        slower = self._notes() - self._said
        for note in sorted(slower):
            self._say(note)
        self._said |= slower

    def _over(self) -> bool:
        """Returns whether all steps have been made, or enough has been learnt."""
        return self._progress.reached >= _ENOUGH or self._progress.step >= self._settings.total_steps

    def _log(self) -> None:
        self._say_slower()
        now, progress = time.perf_counter(), self._progress
        if self._ranks.size > 1:
            for ended in self._ranks.gather(self._episodes.take()):
                self._episodes.put(ended)
        then, step, updates = self._logged
        self._logged = (now, progress.step, progress.updates)
        row: dict[str, Any] = {
            "steps_per_second": (progress.step - step) / (now - then),
            "updates": progress.updates,
            "updates_per_second": (progress.updates - updates) / (now - then),
            "updates_skipped": int(self.learner.agent.skipped[0]),
            **self._episodes.drain(),
            **self._row(),
        }
        self._telemetry.train(progress.step, row)
        self._check()

    def __enter__(self) -> Self:
        return self

    def _release(self) -> None:
        """Drops what was captured on the device, at the run's end in whatever way; nothing is waited for."""
        self.learner.release()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, WorkerError) and self._stepping:
                self._save(environments_lost=True)
        finally:
            self._release()
            self._vector.close()
            self._evaluations.close()
