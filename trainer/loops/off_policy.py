"""The off-policy loop: act, learn while the environments step, remember what they brought.

Timing never changes a result. The updates of a vector step lack only the transitions of that very step;
the policy that acts has seen all updates before it or, where that would leave a GPU waiting, all but those
of the vector step before (`Acting`). What a vector step has brought is stored while the next one is made,
for until then the environments would stand still; only before a line of the log, an evaluation, a checkpoint
or the end it is stored at once. A run that is interrupted after any vector step goes on to the bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from trainer.algorithms.acting import Acting
from trainer.checkpoint import CheckpointStore
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import WorkerCommand
from trainer.envs.vector import StepOutcome
from trainer.loops.attempt import TrainingAttempt
from trainer.loops.learner import Learner
from trainer.loops.memory import AnyReplay
from trainer.loops.saving import restore_replay
from trainer.loops.state import FoundCheckpoint, RunCounters
from trainer.preemption import StopSignals
from trainer.ranks.parallel import Ranks
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry


def earn(progress: RunCounters, steps: int, steps_per_update: float) -> int:
    """Adds environment steps to a run's credit, and turns it into the updates that are returned.

    This keeps the recipe's ratio of updates to data exact over time: what does not make a whole update is
    carried over.
    """
    progress.credit += steps
    updates = int(progress.credit // steps_per_update)
    progress.credit -= updates * steps_per_update
    return updates


class VectorStep(NamedTuple):
    """What a vector step was and has brought, in the words of `Learner.remember`.

    Attributes:
        ended: bool (num_envs,), whether the episode has, in whatever way.
    """

    observation: npt.NDArray[np.float32]
    action: npt.NDArray[np.float32]
    outcome: StepOutcome
    task: npt.NDArray[np.int32]
    remaining: npt.NDArray[np.int64]
    ended: npt.NDArray[np.bool_]


class OffPolicyRun(TrainingAttempt[Learner]):
    """One attempt at an off-policy run.

    Args:
        settings: what to do.
        factory: makes the environments.
        device: where to learn.
        telemetry: records everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        resumed: the checkpoint to continue from, or None.
        ranks: with whom this process learns; each has its share of environments, replay and batch.

    Attributes:
        updates_due: updates that are earned and not made yet.
    """

    learns_meanwhile = True

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        device: torch.device,
        telemetry: Telemetry,
        stop: StopSignals,
        store: CheckpointStore,
        resumed: FoundCheckpoint | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        super().__init__(settings, factory, telemetry, stop, store, resumed, ranks)
        fallback = resumed.parts["state"]["memory_fallback"] if resumed else None
        learner = Learner(settings, factory, device, self._say, fallback, self._ranks)
        policy = learner.agent.policy
        lag = settings.lag_on(device.type)
        self._acting = Acting(policy, self._num_envs, factory.observation_dim, lag=lag)
        self._learning = False
        self._left: VectorStep | None = None
        self.updates_due = 0
        self._take_up(learner, policy, resumed)

    def step(self) -> None:
        """Steps every environment once, and makes the updates that this earns.

        The order, which decides every bit of the result:

        1. At the first step after the warm-up, the observations seen so far fix how all are normalised.
        2. The schedules advance, by the share of the training that is left.
        3. The policy, or the uniform draw of the warm-up, chooses actions (num_envs, action_dim).
        4. The environments start; the steps earn updates, at the recipe's ratio.
        5. While they step, the outcome of the step before is stored and its ended episodes are counted, if
           that has been left.
        6. The updates run meanwhile too, on batches without this step's transitions.
        7. The outcome is awaited, and stored at once where more than the next step follows.
        """
        self.act()
        self.catch_up()
        if self.due:
            self.learn()
        self.gather()

    def act(self) -> None:
        """Chooses the actions, has the environments step and counts the updates that this earns."""
        self._stepping = True
        progress, num_envs = self._progress, self._settings.num_envs
        if self._may_learn() and not progress.normalized:
            self.learner.fit_normalization()
            progress.normalized = True
        self.learner.agent.schedule(max(1.0 - progress.step / self._settings.total_steps, 0.0))
        self._observation = self._vector.observation
        self._task, self._remaining = self._schedule.tasks, self._schedule.remaining
        with self._telemetry.clock("act"):
            if progress.step < self._values["warmup_steps"]:
                self._action = self.learner.agent.policy.uniform(self._rng, self._num_envs)
            else:
                self._action = self._acting.act(self._observation, self._task)
        self._orders = self._schedule.advance()
        self._vector.start(self._orders, self._action)
        if self._learning:
            self.updates_due = earn(progress, num_envs, self._values["env_steps_per_update"])

    def catch_up(self) -> None:
        """Stores the outcome of the vector step before, if that was left, and says where the run was then."""
        if self._left is not None:
            left, self._left = self._left, None
            self._take_in(left)
            self._tell()

    @property
    def due(self) -> bool:
        """Whether there are updates to make."""
        return self.updates_due > 0

    def learn(self) -> None:
        """Makes the updates that are due."""
        with self._telemetry.clock("learn"):
            while self.updates_due:
                self.learner.update()
                self.updates_due -= 1
                self._progress.updates += 1

    def count_update(self) -> None:
        """Counts an update that the learner has made in a group."""
        self.updates_due -= 1
        self._progress.updates += 1

    def gather(self) -> None:
        """Waits for the environments; takes in what the vector step brought, or leaves that to `catch_up`.

        It is not left in the warm-up: whether that is over depends on what is stored.
        """
        if self._acting.lag:
            self._acting.learnt()
        with self._telemetry.clock("env"):
            outcome = self._outcome()
        reset = self._orders.command == WorkerCommand.STEP_THEN_RESET
        ended = reset | outcome.terminated | outcome.truncated
        step = VectorStep(self._observation, self._action, outcome, self._task, self._remaining, ended)
        progress = self._progress
        progress.step += self._settings.num_envs
        self._phase = "warmup" if progress.step < progress.learning_starts else "train"
        if self._learning and not self._pauses():
            self._left = step._replace(outcome=outcome.copy())
        else:
            self._take_in(step)

    def report(self) -> None:
        """Logs, evaluates and saves what is due after a vector step that has been taken in."""
        if self._left is None:
            super().report()
        else:
            self._reported, self._stepping = self._progress.step, False

    def _take_in(self, step: VectorStep) -> None:
        """Stores what a vector step has brought, and counts the episodes that it ended."""
        self.learner.remember(step.observation, step.action, step.outcome, step.task, step.remaining)
        self._episodes.add(step.task, step.outcome.reward, step.outcome.success, step.ended)

    def _may_learn(self) -> bool:
        """Tells whether the warm-up is over and each task has been seen, by every rank."""
        if not self._learning and self._progress.step >= self._progress.learning_starts:
            self._learning = not self._ranks.any(bool(self.learner.replay.sizes.min() == 0))
        return self._learning

    def _notes(self) -> set[str]:
        return {self.learner.remark, self.learner.note, self._acting.note}

    def _release(self) -> None:
        super()._release()
        self._acting.release()

    def _replay(self) -> AnyReplay:
        return self.learner.replay

    def _row(self) -> dict[str, Any]:
        """Returns the training metrics since the last call."""
        losses = {name: float(value) for name, value in self.learner.losses.items()}
        return {**losses, **self.learner.by_task(self._settings.tasks)}

    def _look(self) -> dict[str, float]:
        """Looks into the networks, once there is a batch to look at them with."""
        agent, batch = self.learner.agent, self.learner.batch
        if batch is None:
            return {}
        looked: dict[str, float] = self.learner.entry.diagnose(agent, batch, self._settings.tasks)
        return looked

    def _own_state(self) -> dict[str, Any]:
        """Returns what the loop adds to this rank's part of a checkpoint."""
        assert self._left is None, "a checkpoint lacks a vector step"
        return {
            "acting": self._acting.state_dict(),
            "memory_fallback": self.learner.memory_fallback,
            "turn": self.learner.turn,
            "losses": {name: float(value) for name, value in self.learner.losses.items()},
            "returns": self.learner.returns_state(),
        }

    def _restore(self, resumed: FoundCheckpoint) -> None:
        """Takes over what `_own_state` returned, and the replay."""
        state, replay, go_on = resumed.parts["state"], self.learner.replay, self._environments is not None
        self._acting.load_state_dict(state["acting"])
        self.learner.turn = state["turn"]
        self.learner.losses = {name: torch.tensor(value) for name, value in state["losses"].items()}
        self.learner.restore_returns(state["returns"], episodes_go_on=go_on)
        if not resumed.replay:
            self._progress.learning_starts = self._progress.step + self._values["warmup_steps"]
        else:
            restore_replay(self._store, self._ranks, resumed.path, replay)
        if not go_on:
            replay.cut()
