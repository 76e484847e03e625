"""A run and its checkpoints: its parts, how they are saved and restored."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from trainer.checkpoint import CheckpointStore
from trainer.checkpoint.model import about
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import Autoreset, Schedule
from trainer.envs.vector import VectorEnv
from trainer.errors import WorkerError
from trainer.loops.evaluations import Evaluations
from trainer.loops.generators import restore_generators, stored_generators
from trainer.loops.learner import Learner
from trainer.loops.memory import AnyReplay
from trainer.loops.rollout_learner import RolloutLearner
from trainer.loops.saving import align, save
from trainer.loops.state import (
    EpisodeStatistics,
    FoundCheckpoint,
    RunCounters,
    stored_environments,
    usable_environments,
)
from trainer.machine.processors import usable_processors
from trainer.nn.actor import Actor
from trainer.preemption import StopSignals
from trainer.ranks.parallel import Ranks
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry

AnyLearner = TypeVar("AnyLearner", bound=Learner | RolloutLearner)

_TROUBLED = 10
"""Skipped updates in a row from which on no checkpoint is written: the run may go back to the last one."""


class CheckpointedRun(ABC, Generic[AnyLearner]):
    """The parts of a run on one rank, and its checkpoints.

    Args:
        settings: what to do.
        factory: makes the environments.
        telemetry: records everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        resumed: the checkpoint to continue from, or None.
        ranks: with whom this process learns.

    Attributes:
        stop: as given.
        learner: the networks with what they learn from.
    """

    learns_meanwhile: ClassVar[bool]
    """Whether it learns while the environments step, or else after that, once it has gathered enough."""

    @staticmethod
    def notes(settings: TrainSettings) -> list[str]:
        """Returns what a run's log says of how it learns."""
        del settings
        return []

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        telemetry: Telemetry,
        stop: StopSignals,
        store: CheckpointStore,
        resumed: FoundCheckpoint | None,
        ranks: Ranks | None,
    ) -> None:
        state: Mapping[str, Any] = resumed.parts["state"] if resumed else {}
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
        progress.aim_at(settings.stop_at, settings.total_steps)
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

    def _take_up(self, learner: AnyLearner, policy: Actor, resumed: FoundCheckpoint | None) -> None:
        """Completes the attempt with its learner, and goes on from a checkpoint if there is one."""
        settings, factory = self._settings, self._factory
        self.learner = learner
        evaluated = settings if self._ranks.writes else replace(settings, eval_every=0)
        self._evaluations = Evaluations(evaluated, factory, policy, self._telemetry, self.stop)
        self._episodes = EpisodeStatistics(
            self._num_envs,
            settings.tasks,
            success=factory.reports_success,
            lengths=factory.episode_steps is None,
        )
        self._environments: Mapping[str, Any] | None = None
        if resumed:
            state = resumed.parts["state"]
            learner.agent.load_state_dict(resumed.parts["model"]["learner"])
            self._environments = usable_environments(state["environments"], self._num_envs, self._say)
            self._restore(resumed)
            if self._environments is not None:
                self._episodes.load_state_dict(state["episodes"])
            restore_generators(state["generators"], self._rng)
        plan = self._environments["schedule"] if self._environments else None
        self._schedule = plan_episodes(settings, factory, self._ranks, self._rng, self._progress.step, plan)

    def _look(self) -> dict[str, float]:
        """Returns what to record of the networks with an evaluation."""
        return {}

    @abstractmethod
    def _own_state(self) -> dict[str, Any]:
        """Returns what the loop adds to this rank's part of a checkpoint."""

    @abstractmethod
    def _restore(self, resumed: FoundCheckpoint) -> None:
        """Takes over what `_own_state` returned; the agent is restored, the running episodes may be lost."""

    def _replay(self) -> AnyReplay | None:
        """Returns what a checkpoint keeps of past transitions."""
        return None

    def _save(self, *, environments_lost: bool = False) -> None:
        """Writes a checkpoint and records it; or says why there is none, and training continues.

        Raises:
            WorkerError: the environments cannot be asked for their states; the checkpoint, which is written
                first, has all else.
        """
        step = self._progress.step
        if int(self.learner.agent.skipped[1]) >= _TROUBLED:
            self._say(f"no checkpoint at step {step:,}: the last updates were not finite")
            return
        if align(self._ranks, self.learner.shared()) and self._ranks.writes:
            self._say("the ranks' networks had diverged: all continue with those of rank 0")
        with self._telemetry.clock("checkpoint"):
            environments, fault = None, None
            if not environments_lost:
                try:
                    environments = stored_environments(self._schedule.state(), self._vector.state())
                except WorkerError as error:
                    fault = error
            own = self._state(environments)
            state = {
                "progress": self._progress.as_dict(),
                "evaluations": self._evaluations.state_dict(),
            }
            learnt = self.learner.agent.state_dict()
            parts = {"model": {"about": self._about(), "learner": learnt}, "state": state}
            try:
                saved = save(self._store, self._ranks, step, parts, own, self._replay())
            except OSError as error:
                self._say(f"no checkpoint at step {step:,}: {error}; training continues")
                return
        if saved is not None:  # else rank 0 has written it
            path = saved.path.relative_to(self._settings.run_dir)
            self._telemetry.checkpoint(step, path, saved.nbytes, saved.seconds)
        if fault is not None:
            raise fault

    def _state(self, environments: Mapping[str, Any] | None) -> dict[str, Any]:
        """Returns what this rank adds to a checkpoint besides what has been learnt and the counters."""
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


def plan_episodes(
    settings: TrainSettings,
    factory: EnvFactory,
    ranks: Ranks,
    rng: np.random.Generator,
    begun: int,
    state: Mapping[str, Any] | None,
) -> Schedule | Autoreset:
    """Plans the episodes of this rank's environments, or goes on where a plan was.

    Args:
        settings: of the run.
        factory: makes the environments.
        ranks: with whom this process learns.
        rng: the generator of the goals.
        begun: environment steps that the run has made.
        state: of the plan to go on with, or None.
    """
    values, num_envs, tasks = settings.recipe.values, settings.own_envs, len(settings.tasks)
    if factory.episode_steps is None:
        return Autoreset(num_envs, begun + ranks.rank * num_envs)
    turn = ranks.rank * (num_envs % tasks)  # the environments left over on all ranks take the tasks in turn
    return Schedule(
        num_envs,
        tasks,
        factory.episode_steps,
        values["goals_per_task"],
        rng,
        stagger=values.get("stagger_episodes", False),
        turn=turn,
        state=state,
    )
