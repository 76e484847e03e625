"""One attempt at a training run: what every loop does besides acting and learning."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from trainer.checkpoint import CheckpointStore
from trainer.envs.interface import EnvFactory
from trainer.envs.vector import StepOutcome, VectorEnv
from trainer.errors import DivergedError, TrainerError, WorkerError
from trainer.loops.episodes import plan_episodes
from trainer.loops.evaluations import Evaluations
from trainer.loops.guards import align
from trainer.loops.learner import Learner
from trainer.loops.memory import AnyReplay
from trainer.loops.rollout_learner import RolloutLearner
from trainer.loops.saving import save
from trainer.loops.state import (
    FoundCheckpoint,
    RunCounters,
    restore_generators,
    stored_environments,
    stored_generators,
    usable_environments,
)
from trainer.loops.statistics import EpisodeStatistics
from trainer.model import about, digest, save_final
from trainer.nn.actor import Actor
from trainer.pacing import crossed
from trainer.parallel import Ranks
from trainer.preemption import StoppedError, StopSignals
from trainer.processors import usable_processors
from trainer.recipe.kinds import on_metaworld
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry

AnyLearner = TypeVar("AnyLearner", bound=Learner | RolloutLearner)

POLL_SECONDS = 0.05
"""Seconds between two looks at an evaluation that a finished run waits for."""
_WORKER_LOST = 1000
"""Sent to the other ranks in the place of a signal's number."""


class TrainingAttempt(ABC, Generic[AnyLearner]):
    """One attempt at a run.

    Use as a context manager, which ends the workers; where a worker was lost it first writes a checkpoint of
    everything but the vector step that failed.

    Each rank of a run makes its own, with its share of the environments, and comes to the same counters,
    networks and decisions at every vector step.

    `train` is the whole attempt. Several runs in one process are driven by `trainer.seed_group` instead,
    phase by phase: `begin`; `act`, `learn`, `gather` and `report` while `going`; `end`; and `exit_code` once
    not `waiting`.

    Args:
        settings: what to do.
        factory: makes the environments.
        telemetry: told of everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        found: the checkpoint to continue from, or None.
        ranks: with whom this process learns.

    Attributes:
        stop: as given.
        learner: the networks with what they learn from.
    """

    learns_meanwhile: ClassVar[bool]
    """Whether it learns while the environments step, or else after that, once it has gathered enough."""

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
        self.stop = stop
        self._settings = settings
        self._values = settings.recipe.values
        self._factory = factory
        self._telemetry = telemetry
        self._store = store
        self._ranks = ranks or Ranks()
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
            helping=not self.learns_meanwhile and alone,
            processors=usable_processors() // settings.together,
        )
        self._unfinished: Mapping[str, Any] = state.get("evaluations", {})
        self._said = {""}
        self._begun = self._stopping = False
        self._stepping = False  # within a vector step
        self._reported = progress.step
        self._logged = (time.perf_counter(), progress.step, progress.updates)

    def _take_up(self, learner: AnyLearner, policy: Actor, found: FoundCheckpoint | None) -> None:
        """Completes the attempt with its learner, and goes on from a checkpoint if there is one."""
        settings, factory = self._settings, self._factory
        self.learner = learner
        self._evaluations = Evaluations(settings, factory, policy, self._telemetry, self.stop)
        self._episodes = EpisodeStatistics(
            self._num_envs,
            settings.tasks,
            success=factory.reports_success,
            lengths=not on_metaworld(self._values),
        )
        self._environments: Mapping[str, Any] | None = None
        if found:
            state = found.parts["state"]
            learner.agent.load_state_dict(found.parts["model"]["learner"])
            self._environments = usable_environments(state["environments"], self._num_envs, self._say)
            self._restore(found)
            if self._environments is not None:
                self._episodes.load_state_dict(state["episodes"])
            restore_generators(state["generators"], self._rng)
        plan = self._environments["schedule"] if self._environments else None
        self._schedule = plan_episodes(settings, self._ranks, self._rng, self._progress.step, plan)

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
        while self.waiting:
            time.sleep(POLL_SECONDS)
        return self.exit_code()

    def begin(self) -> None:
        """Starts the environments, or continues their episodes; a signal ends that at once."""
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

    def beat(self) -> None:
        """Keeps the heartbeat fresh while other runs of the process catch up."""
        self._telemetry.heartbeat()

    def report(self) -> None:
        """Logs, evaluates and saves what is due after a vector step."""
        settings, before, now = self._settings, self._reported, self._progress.step
        self._reported, self._stepping = now, False
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

    def end(self) -> None:
        """Writes the last checkpoint, and after the last step the final model, whose evaluation begins."""
        if not self._begun:  # what there is to resume from is as it was
            assert self.stop.received is not None
            self._say(f"{self.stop.received.name} received: stopping before the first step")
        elif self._over():
            self._finish()
        else:
            assert self.stop.received is not None
            if self._ranks.writes:
                self._say(f"{self.stop.received.name} received: writing a checkpoint and stopping")
            self._save()
            self._ranks.part()

    @property
    def waiting(self) -> bool:
        """Whether an evaluation is being played that the end of the run waits for."""
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

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Returns what the loop adds to this rank's part of a checkpoint."""

    @abstractmethod
    def _restore(self, found: FoundCheckpoint) -> None:
        """Takes over what `_own_state` returned; the agent is restored, the episodes may be new."""

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
            self._ranks.most(_WORKER_LOST)  # the others wait in `_agree`
            raise
        self._agree()
        return outcome

    def _agree(self) -> None:
        """Has all ranks stop at the same vector step, whichever of them has received a signal.

        Raises:
            WorkerError: another rank has lost an environment worker.
        """
        number = self._ranks.most(int(self.stop.received or 0) if self.stop else 0)
        if number == _WORKER_LOST:
            raise WorkerError("another rank has lost an environment worker; its own message says how")
        if number:
            self.stop.take(number)
            self._stopping = True

    def _notes(self) -> set[str]:
        """Returns what is slower than it could be."""
        return {self.learner.note}

    def _phase(self) -> str:
        return "train"

    def _replay(self) -> AnyReplay | None:
        """Returns what a checkpoint keeps of past transitions."""
        return None

    def _over(self) -> bool:
        """Returns whether all steps have been made."""
        return self._progress.step >= self._settings.total_steps

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
            "updates_skipped": int(self.learner.agent.skipped[0]),
            **self._episodes.drain(),
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
            self.learner.check()
        except DivergedError as error:
            if not self._vector.spoilt:
                raise
            hint = "an environment must not give what is not finite: mend it, or end the episode there"
            raise DivergedError(f"{error.cause}: {self._vector.spoilt[0]}", hint=hint) from error

    def _finish(self) -> None:
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
        self._evaluate(self._settings.final_episodes)

    def _save(self, *, environments_lost: bool = False) -> None:
        """Writes a checkpoint and records it; or says why there is none, and training goes on."""
        step = self._progress.step
        if self.learner.troubled:  # and may have to go back to the checkpoint before
            self._say(f"no checkpoint at step {step:,}: the last updates were not finite")
            return
        if align(self._ranks, self.learner.shared()) and self._ranks.writes:
            self._say("the networks of the ranks had come to differ: all go on with those of rank 0")
        with self._telemetry.clock("checkpoint"):
            own = self._state(environments_lost=environments_lost)
            state = {
                "progress": self._progress.as_dict(),
                "evaluations": self._evaluations.state_dict(),
            }
            learnt = self.learner.agent.state_dict()
            parts = {"model": {"about": self._about(), "learner": learnt}, "state": state}
            try:
                saved = save(self._store, self._ranks, step, parts, own, self._replay())
            except OSError as error:
                self._say(f"no checkpoint at step {step:,}: {error}; training goes on")
                return
        if saved is not None:  # else rank 0 has written it
            path = saved.path.relative_to(self._settings.run_dir)
            self._telemetry.checkpoint(step, path, saved.nbytes, saved.seconds)

    def _state(self, *, environments_lost: bool) -> dict[str, Any]:
        """Returns what this rank adds to a checkpoint besides what has been learnt and the counters."""
        environments = None
        if not environments_lost:
            environments = stored_environments(self._schedule.state(), self._vector.state())
        return {
            "generators": stored_generators(self._rng),
            "environments": environments,
            "episodes": self._episodes.state_dict(),
            **self._own_state(),
        }

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
