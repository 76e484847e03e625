"""The off-policy loop: act, start the environments, learn while they step, gather, remember.

Timing never changes a result. The updates of a vector step lack only the transitions of that very step;
the policy that acts has seen all updates before it or, where that would leave a GPU waiting, all but those
of the vector step before (`Acting`). A run that is interrupted after any vector step goes on to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from trainer.algorithms.acting import Acting
from trainer.algorithms.diagnostics import diagnose
from trainer.checkpoint import CheckpointStore
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import WorkerCommand
from trainer.loops.attempt import TrainingAttempt
from trainer.loops.course import OTHERS, UPDATE, Due, Pauses
from trainer.loops.episodes import plan_episodes
from trainer.loops.evaluations import Evaluations
from trainer.loops.learner import Learner
from trainer.loops.memory import AnyReplay
from trainer.loops.saving import restore_replay
from trainer.loops.state import (
    FoundCheckpoint,
    restore_generators,
    stored_environments,
    stored_generators,
    usable_environments,
)
from trainer.loops.statistics import EpisodeStatistics
from trainer.pacing import UpdateCredit
from trainer.parallel import Ranks
from trainer.preemption import StopSignals
from trainer.recipe.kinds import on_metaworld
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry


class OffPolicyRun(TrainingAttempt[Learner]):
    """One attempt at an off-policy run. Use as a context manager, which ends the workers.

    Args:
        settings: what to do.
        factory: makes the environments.
        device: where to learn.
        telemetry: told of everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        found: the checkpoint to continue from, or None.
        ranks: with whom this process learns; each has its share of environments, replay and batch.
    """

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        device: torch.device,
        telemetry: Telemetry,
        stop: StopSignals,
        store: CheckpointStore,
        found: FoundCheckpoint | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(settings, factory, telemetry, stop, store, found, ranks)
        values = settings.recipe.values
        state: Mapping[str, Any] = found.parts["state"] if found else {}
        self._learning = False
        self._learner = Learner(settings, factory, device, self._say, state.get("rung"), self._ranks)
        self._due, self._others = Due(self._learner, UPDATE), Due(self._learner, OTHERS)
        self._acting = Acting(
            self._learner.agent.policy,
            self._num_envs,
            factory.observation_dim,
            lag=settings.lag_on(device.type),
        )
        self._evaluations = Evaluations(settings, factory, self._learner.agent.policy, telemetry, stop)
        self._episodes = EpisodeStatistics(
            self._num_envs,
            settings.tasks,
            success=factory.reports_success,
            lengths=not on_metaworld(values),
        )
        self._environments = self._restore(found) if found else None
        self._credit = UpdateCredit(values["env_steps_per_update"], self._progress.credit)
        plan = self._environments["schedule"] if self._environments else None
        self._schedule = plan_episodes(settings, self._ranks, self._rng, self._progress.step, plan)

    def _begin(self) -> None:
        """Starts the environments, or continues their episodes."""
        if self._environments is not None:
            self._vector.restore(self._environments["states"])
        else:
            self._vector.reset(self._schedule.first())

    def _vector_step(self) -> Pauses:
        """Steps every environment once, and learns as much as that has earned."""
        progress, num_envs, clock = self._progress, self._settings.num_envs, self._telemetry.clock
        learning = self._may_learn()
        if learning and not progress.normalized:
            self._learner.fit_normalization()
            progress.normalized = True

        task, remaining = self._schedule.tasks, self._schedule.remaining
        observation = self._vector.observation
        with clock("act"):
            action = self._choose(observation, task)

        orders = self._schedule.advance()
        self._vector.start(orders, action)
        updates = self._credit.earn(num_envs) if learning else 0
        if learning:
            with clock("learn"):
                for _ in range(updates):
                    yield self._due
                    progress.updates += 1
                self._acting.learnt()
        if not updates:
            yield self._others
        with clock("env"):
            outcome = self._outcome()

        self._learner.remember(observation, action, outcome, task, remaining)
        ended = (orders.command == WorkerCommand.STEP_THEN_RESET) | outcome.terminated | outcome.truncated
        self._episodes.add(task, outcome.reward, outcome.success, ended)
        progress.step += num_envs

    def _may_learn(self) -> bool:
        """Tells whether the warm-up is over and each task has been seen, by every rank."""
        if not self._learning and self._progress.step >= self._progress.learning_starts:
            self._learning = not self._ranks.any(bool(self._learner.replay.sizes.min() == 0))
        return self._learning

    def _choose(
        self, observation: npt.NDArray[np.float32], task: npt.NDArray[np.int32]
    ) -> npt.NDArray[np.float32]:
        """Returns each environment's action (num_envs, action_dim): uniform at first, then the policy's."""
        if self._progress.step < self._values["warmup_steps"]:
            shape = self._num_envs, self._factory.action_dim
            return self._rng.uniform(-1.0, 1.0, shape).astype(np.float32)
        return self._acting.act(observation, task)

    @property
    def _learnt(self) -> dict[str, Any]:
        return self._learner.agent.state_dict()

    def _notes(self) -> set[str]:
        return {self._learner.note, self._acting.note}

    def _phase(self) -> str:
        return "warmup" if self._progress.step < self._progress.learning_starts else "train"

    def _release(self) -> None:
        super()._release()
        self._acting.release()

    def _replay(self) -> AnyReplay:
        return self._learner.replay

    def _row(self) -> dict[str, Any]:
        """Returns the training metrics since the last call."""
        return {
            "updates_skipped": int(self._learner.agent.skipped[0]),
            **self._episodes.drain(),
            **{name: float(value) for name, value in self._learner.losses.items()},
            **self._learner.by_task(self._settings.tasks),
        }

    def _look(self) -> dict[str, float]:
        """Looks into the networks, once there is a batch to look at them with."""
        agent, batch = self._learner.agent, self._learner.batch
        return {} if batch is None else diagnose(agent, batch, self._settings.tasks)

    def _state(self, *, environments_lost: bool) -> dict[str, Any]:
        """Returns what this rank adds to a checkpoint besides what has been learnt and the counters."""
        self._progress.credit = self._credit.credit
        environments = None
        if not environments_lost:
            environments = stored_environments(self._schedule.state(), self._vector.state())
        return {
            "generators": stored_generators(self._rng),
            "environments": environments,
            "episodes": self._episodes.state_dict(),
            "acting": self._acting.state_dict(),
            "rung": self._learner.rung,
            "returns": self._learner.returns_state(),
        }

    def _restore(self, found: FoundCheckpoint) -> Mapping[str, Any] | None:
        """Takes over a checkpoint; returns the environments whose episodes go on, or None for new ones."""
        state, replay = found.parts["state"], self._learner.replay
        self._learner.agent.load_state_dict(found.parts["model"]["learner"])
        self._acting.load_state_dict(state["acting"])
        environments = usable_environments(state["environments"], self._num_envs, self._say)
        self._learner.restore_returns(state.get("returns"), episodes_go_on=environments is not None)
        if not found.replay:
            self._progress.learning_starts = self._progress.step + self._values["warmup_steps"]
        else:
            restore_replay(self._store, self._ranks, found.path, replay)
        if environments is None:
            replay.cut()
        else:
            self._episodes.load_state_dict(state["episodes"])
        restore_generators(state["generators"], self._rng)
        return environments
