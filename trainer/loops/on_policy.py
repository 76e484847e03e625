"""The on-policy loop: gather a rollout with the weights of one moment, learn from it, forget it.

A run that is interrupted after any vector step, also in the middle of a rollout, goes on to the bit where its
environments can be continued; where they cannot, it begins a new rollout and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trainer.algorithms.rollout_acting import RolloutActing
from trainer.checkpoint import CheckpointStore
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import WorkerCommand
from trainer.loops.attempt import TrainingAttempt
from trainer.loops.course import OTHERS, Due, Pauses
from trainer.loops.episodes import plan_episodes
from trainer.loops.evaluations import Evaluations
from trainer.loops.rollout_learner import RolloutLearner
from trainer.loops.state import (
    FoundCheckpoint,
    restore_generators,
    stored_environments,
    stored_generators,
    usable_environments,
)
from trainer.loops.statistics import EpisodeStatistics
from trainer.parallel import Ranks
from trainer.preemption import StopSignals
from trainer.recipe.kinds import on_metaworld
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry


class OnPolicyRun(TrainingAttempt[RolloutLearner]):
    """One attempt at an on-policy run. Use as a context manager, which ends the workers.

    Args:
        settings: what to do.
        factory: makes the environments.
        device: where to learn.
        telemetry: told of everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        found: the checkpoint to continue from, or None.
        ranks: with whom this process learns; each has its share of environments, rollout and batches.
    """

    _idle_meanwhile = True

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
        num_envs = self._num_envs
        self._learner = RolloutLearner(settings, factory, device, self._ranks)
        self._others = Due(self._learner, OTHERS)
        self._rollout = self._learner.rollout
        policy = self._learner.agent.policy
        self._acting = RolloutActing(policy, self._rollout.steps, num_envs)
        self._evaluations = Evaluations(settings, factory, policy, telemetry, stop)
        self._planned = on_metaworld(settings.recipe.values)
        self._episodes = EpisodeStatistics(
            num_envs, settings.tasks, success=factory.reports_success, lengths=not self._planned
        )
        self._logged_of_learning: dict[str, float] = {}
        self._environments = self._restore(found) if found else None
        plan = self._environments["schedule"] if self._environments else None
        self._schedule = plan_episodes(settings, self._ranks, self._rng, self._progress.step, plan)

    def _begin(self) -> None:
        """Starts the environments, or continues their episodes."""
        if self._environments is not None:
            self._vector.restore(self._environments["states"])
        else:
            self._vector.reset(self._schedule.first())

    def _vector_step(self) -> Pauses:
        """Steps every environment once, and learns when that fills the rollout."""
        rollout, progress, clock = self._rollout, self._progress, self._telemetry.clock
        num_envs = self._settings.num_envs
        policy, task = self._learner.agent.policy, self._schedule.tasks
        observation = self._vector.observation
        shown = policy.shown(observation, task)
        with clock("act"):
            if rollout.filled == 0:
                self._acting.begin()
            action = self._acting.act(shown, rollout.filled)
        orders = self._schedule.advance()
        with clock("env"):
            self._vector.start(orders, action)
        yield self._others
        with clock("env"):
            outcome = self._outcome()
        truncated = outcome.truncated
        if self._planned:
            truncated = truncated | (orders.command == WorkerCommand.STEP_THEN_RESET)
        rollout.add(
            shown,
            action,
            outcome.reward,
            policy.shown(outcome.next_observation, task),
            outcome.terminated,
            truncated,
        )
        ended = outcome.terminated | truncated
        self._episodes.add(task, outcome.reward, outcome.success, ended)
        if rollout.filled == rollout.steps:
            with clock("learn"):
                # the share left when the rollout began: the last one still moves something
                begun = progress.step + num_envs - self._learner.cuts.rollout
                left = max(1.0 - begun / self._settings.total_steps, 0.0)
                yield from self._learner.learn(left, self._beat)
        progress.step += num_envs

    def _beat(self, updates: int) -> None:
        """Counts updates, and keeps the heartbeat fresh within a long phase of learning."""
        self._progress.updates += updates
        self._telemetry.heartbeat(updates=self._progress.updates)

    def _over(self) -> bool:
        """Returns whether all steps have been made and the last rollout has been learnt from."""
        return super()._over() and self._rollout.filled == 0

    @property
    def _learnt(self) -> dict[str, Any]:
        return self._learner.agent.state_dict()

    def _row(self) -> dict[str, Any]:
        """Returns the training metrics since the last call."""
        skipped = int(self._learner.agent.skipped[0])
        return {"updates_skipped": skipped, **self._episodes.drain(), **self._learning()}

    def _learning(self) -> dict[str, float]:
        """Returns what is logged of the last rollout learnt from, also of one before a resumption."""
        if self._learner.losses:
            self._logged_of_learning = {
                **{name: float(value) for name, value in self._learner.losses.items()},
                "explained_variance": self._learner.explained_variance(),
                "learning_rate": float(self._learner.agent.learning_rate),
            }
        return self._logged_of_learning

    def _state(self, *, environments_lost: bool) -> dict[str, Any]:
        """Returns what this rank adds to a checkpoint besides what has been learnt and the counters."""
        environments = (
            None if environments_lost else stored_environments(self._schedule.state(), self._vector.state())
        )
        return {
            "generators": stored_generators(self._rng),
            "environments": environments,
            "episodes": self._episodes.state_dict(),
            "acting": self._acting.state_dict(),
            "rollout": self._rollout.state_dict(),
            "sums": self._learner.agent.sums.clone(),
            "learning": self._learning(),
        }

    def _restore(self, found: FoundCheckpoint) -> Mapping[str, Any] | None:
        """Takes over a checkpoint; returns the environments whose episodes go on, or None for new ones."""
        state = found.parts["state"]
        self._logged_of_learning = state.get("learning", {})
        self._learner.agent.load_state_dict(found.parts["model"]["learner"])
        if "sums" in state:  # what has been learnt has those of rank 0
            self._learner.agent.continue_sums(state["sums"])
        environments = usable_environments(state["environments"], self._num_envs, self._say)
        if environments is not None:
            self._episodes.load_state_dict(state["episodes"])
            self._rollout.load_state_dict(state["rollout"])
            self._acting.load_state_dict(state["acting"])
        restore_generators(state["generators"], self._rng)
        return environments
