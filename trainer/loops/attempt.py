"""One attempt at a training run: what every loop does besides acting and learning."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from trainer.checkpoint import CheckpointStore
from trainer.envs.interface import EnvFactory
from trainer.envs.vector import StepOutcome, VectorEnv
from trainer.errors import DivergedError, TrainerError, WorkerError
from trainer.loops.agreement import Agreement
from trainer.loops.course import OTHERS, REST, Course, Due, Guarded, Pauses
from trainer.loops.evaluations import Evaluations
from trainer.loops.guards import align
from trainer.loops.memory import AnyReplay
from trainer.loops.saving import save
from trainer.loops.state import FoundCheckpoint, RunCounters
from trainer.loops.statistics import EpisodeStatistics
from trainer.model import about, digest, save_final
from trainer.pacing import crossed
from trainer.parallel import Ranks
from trainer.preemption import StoppedError, StopSignals
from trainer.processors import usable_processors
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry

L = TypeVar("L", bound=Guarded)


class TrainingAttempt(ABC, Generic[L]):
    """One attempt. Use as a context manager, which ends the workers.

    Each rank of a run makes its own, with its share of the environments, and comes to the same counters,
    networks and decisions at every vector step.

    Args:
        settings: what to do.
        factory: makes the environments.
        telemetry: told of everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        found: the checkpoint to continue from, or None.
        ranks: with whom this process learns.
    """

    _episodes: EpisodeStatistics
    _evaluations: Evaluations
    _learner: L
    _idle_meanwhile: ClassVar[bool] = False
    """Whether there is nothing to do while the environments step, but to step some of them."""

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        telemetry: Telemetry,
        stop: StopSignals,
        store: CheckpointStore,
        found: FoundCheckpoint | None,
        ranks: Ranks | None,
    ) -> None:
        state: Mapping[str, Any] = found.parts["state"] if found else {}
        warmup = settings.recipe.values.get("warmup_steps", 0)
        self._settings = settings
        self._values = settings.recipe.values
        self._factory = factory
        self._telemetry = telemetry
        self._stop = stop
        self._store = store
        self._ranks = ranks or Ranks()
        self._agreement = Agreement(self._ranks, stop)
        rank = self._ranks.rank
        self._rng = np.random.default_rng([settings.seed, rank] if rank else settings.seed)
        self._num_envs = settings.own_envs
        self._progress = progress = RunCounters(**state.get("progress", {"learning_starts": warmup}))
        # no method: the learner gets it too, and would hold the run that holds the learner
        self._say: Callable[[str], None] = lambda text: telemetry.event(progress.step, text)
        # first, for the workers import while the networks are built
        alone = settings.together == 1  # else there are others to go on with while environments step
        self._vector = VectorEnv(
            factory,
            self._num_envs,
            workers=settings.own_workers,
            helping=self._idle_meanwhile and alone,
            processors=usable_processors() // settings.together,
        )
        self._unfinished: Mapping[str, Any] = state.get("evaluations", {})
        self._said = {""}
        self._logged = (time.perf_counter(), self._progress.step, self._progress.updates)

    def course(self) -> Course:
        """Trains to the last step, or until a signal; returns the exit code of the run.

        Raises:
            WorkerError: an environment worker died or hangs; a checkpoint to resume from has been written.
            DivergedError: the updates give numbers that are not finite.
            TrainerError: the final model cannot be written, or the device's memory is too small.
        """
        yield Due(self._learner, OTHERS)  # so that the workers of all import at once
        self._telemetry.heartbeat(step=self._progress.step, updates=self._progress.updates, phase="start")
        self._evaluations.load_state_dict(self._unfinished)
        try:
            # workers import for seconds; with other ranks all stop at the same step, or none
            with self._stop.at_once() if self._ranks.size == 1 else nullcontext():
                self._begin()
        except StoppedError:
            assert self._stop.received is not None
            self._say(f"{self._stop.received.name} received: stopping before the first step")
            return self._stop.exit_code  # what there is to resume from is as it was
        self._agreement.reach()
        while not self._over() and not self._agreement.stopping:
            before = self._progress.step
            try:
                yield from self._vector_step()
            except WorkerError:
                self._save(environments_lost=True)  # all but the step that failed
                raise
            self._report(before)
        return (yield from self._finish()) if self._over() else self._leave()

    @abstractmethod
    def _begin(self) -> None:
        """Starts the environments, or continues their episodes."""

    @abstractmethod
    def _vector_step(self) -> Pauses:
        """Steps every environment once, and learns what is due."""

    @property
    @abstractmethod
    def _learnt(self) -> dict[str, Any]:
        """What has been learnt, as in the checkpoint."""

    @abstractmethod
    def _row(self) -> dict[str, Any]:
        """Returns the training metrics since the last call."""

    @abstractmethod
    def _state(self, *, environments_lost: bool) -> dict[str, Any]:
        """Returns what this rank adds to a checkpoint besides what has been learnt and the counters."""

    def _look(self) -> dict[str, float]:
        """Returns what to record of the networks with an evaluation."""
        return {}

    def _evaluate(self, episodes: int) -> None:
        """Has the policy, as it is now, evaluated."""
        with self._telemetry.clock("evaluate"):
            self._evaluations.submit(self._progress.step, episodes, self._look)

    def _outcome(self) -> StepOutcome:
        """Returns what the vector step has led to, when all ranks have theirs.

        Raises:
            WorkerError: a worker of this rank or of another one died or hangs.
        """
        try:
            outcome = self._vector.wait()
        except WorkerError:
            self._agreement.lost()
            raise
        self._agreement.reach()
        return outcome

    def _notes(self) -> set[str]:
        """Returns what is slower than it could be."""
        return {self._learner.note}

    def _phase(self) -> str:
        return "train"

    def _replay(self) -> AnyReplay | None:
        """Returns what a checkpoint keeps of past transitions."""
        return None

    def _over(self) -> bool:
        """Returns whether all steps have been made."""
        return self._progress.step >= self._settings.total_steps

    def _report(self, before: int) -> None:
        """Logs, evaluates and saves what is due after a vector step."""
        settings, now = self._settings, self._progress.step
        slower = self._notes() - self._said
        for note in (*self._vector.take_notes(), *sorted(slower)):
            self._say(note)
        self._said |= slower
        self._telemetry.heartbeat(step=now, updates=self._progress.updates, phase=self._phase())
        self._evaluations.collect()
        if crossed(settings.log_every, before, now):
            self._log()
        if self._over():
            return  # the end has its own evaluation and checkpoint
        if crossed(settings.eval_every, before, now):
            self._evaluate(settings.eval_episodes)
        if crossed(settings.checkpoint_every, before, now):
            self._save()

    def _log(self) -> None:
        now, progress = time.perf_counter(), self._progress
        for ended in self._ranks.gather(self._episodes.take()):
            self._episodes.put(ended)
        then, step, updates = self._logged
        self._logged = (now, progress.step, progress.updates)
        row: dict[str, Any] = {
            "steps_per_second": (progress.step - step) / (now - then),
            "updates": progress.updates,
            "updates_per_second": (progress.updates - updates) / (now - then),
            **self._row(),
        }
        self._telemetry.train(progress.step, row)
        self._telemetry.heartbeat(mean_return=row.get("return/mean"))
        self._check()

    def _check(self) -> None:
        """Looks whether learning has come to an end, and whether an environment is to blame.

        Raises:
            DivergedError: update after update was skipped.
        """
        try:
            self._learner.check()
        except DivergedError as error:
            if not self._vector.spoilt:
                raise
            hint = "an environment must not give what is not finite: mend it, or end the episode there"
            raise DivergedError(f"{error.cause}: {self._vector.spoilt[0]}", hint=hint) from error

    def _leave(self) -> int:
        assert self._stop.received is not None
        if self._ranks.writes:
            self._say(f"{self._stop.received.name} received: writing a checkpoint and stopping")
        self._save()
        self._ranks.part()
        return self._stop.exit_code

    def _finish(self) -> Course:
        self._check()
        # before the checkpoint: should the last evaluation be interrupted, these are not to be had again
        self._evaluations.note(self._progress.step, self._look)
        self._save()
        self._ranks.part()
        if not self._ranks.writes:
            return 0
        learnt = self._learnt
        try:
            save_final(self._settings.run_dir, self._about(), learnt)
        except OSError as error:
            raise TrainerError(f"the final model cannot be written: {error}") from error
        self._say(f"the parameters of the final model have the sha256 {digest(learnt)}")
        self._evaluate(self._settings.final_episodes)
        while self._evaluations.unfinished():
            yield Due(self._learner, REST)
        if self._stop:
            return self._stop.exit_code
        self._telemetry.heartbeat(step=self._progress.step, phase="done")
        return 0

    def _save(self, *, environments_lost: bool = False) -> None:
        """Writes a checkpoint and records it; or says why there is none, and training goes on."""
        step = self._progress.step
        if self._learner.troubled:  # and may have to go back to the checkpoint before
            self._say(f"no checkpoint at step {step:,}: the last updates were not finite")
            return
        if align(self._ranks, self._learner.shared()) and self._ranks.writes:
            self._say("the networks of the ranks had come to differ: all go on with those of rank 0")
        with self._telemetry.clock("checkpoint"):
            own = self._state(environments_lost=environments_lost)
            state = {
                "progress": self._progress.as_dict(),
                "evaluations": self._evaluations.state_dict(),
            }
            parts = {"model": {"about": self._about(), "learner": self._learnt}, "state": state}
            try:
                saved = save(self._store, self._ranks, step, parts, own, self._replay())
            except OSError as error:
                self._say(f"no checkpoint at step {step:,}: {error}; training goes on")
                return
        if saved is not None:  # else rank 0 has written it
            path = saved.path.relative_to(self._settings.run_dir)
            self._telemetry.checkpoint(step, path, saved.nbytes, saved.seconds)

    def _about(self) -> dict[str, Any]:
        settings, factory = self._settings, self._factory
        return about(
            settings.recipe.as_json(),
            settings.tasks,
            factory.observation_dim,
            factory.action_dim,
            self._progress.step,
            factory.action_space,
            settings.goal_seed,
        )

    def __enter__(self) -> Self:
        return self

    def _release(self) -> None:
        """Drops what was captured on the device, at the run's end in whatever way; nothing is waited for."""
        self._learner.release()

    def __exit__(self, *_: object) -> None:
        self._release()
        self._vector.close()
        self._evaluations.close()
