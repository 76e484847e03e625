"""The on-policy loop: gather a rollout with the weights of one moment, learn from it, forget it.

A run that is interrupted after any vector step, also in the middle of a rollout, goes on to the bit where its
environments can be continued; where they cannot, it begins a new rollout and says so.

The noise of a whole rollout is drawn at once, from the host's default generator on any device. Beside a GPU a
small network acts on the host, from a copy made once a rollout: to go there and back at each step would take
longer. A large one acts on the GPU.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.checkpoint import CheckpointStore
from trainer.envs.interface import EnvFactory
from trainer.envs.schedule import WorkerCommand
from trainer.loops.attempt import TrainingAttempt
from trainer.loops.rollout_learner import RolloutLearner
from trainer.loops.state import FoundCheckpoint
from trainer.nn.actor_critic import ActorCritic
from trainer.preemption import StopSignals
from trainer.ranks.parallel import Ranks
from trainer.recipe import batches
from trainer.recipe.share import acts_on_host
from trainer.settings import TrainSettings
from trainer.telemetry import Telemetry


class OnPolicyRun(TrainingAttempt[RolloutLearner]):
    """One attempt at an on-policy run.

    Args:
        settings: what to do.
        factory: makes the environments.
        device: where to learn.
        telemetry: records everything.
        stop: looked at after each vector step.
        store: the run's checkpoints.
        resumed: the checkpoint to continue from, or None.
        ranks: with whom this process learns; each has its share of environments, rollout and batches.
    """

    learns_meanwhile = False

    @staticmethod
    def notes(settings: TrainSettings) -> list[str]:
        """Says how rollouts are cut."""
        values, envs = settings.recipe.values, settings.num_envs
        cuts = batches(settings.recipe.name, values, envs)
        rounded = f", the recipe's {values['rollout_size']:,} rounded up to whole steps"
        return [
            f"rollouts of {cuts.steps:,} steps x {envs} environments = {cuts.rollout:,} transitions"
            f"{rounded if cuts.rollout > values['rollout_size'] else ''}, in batches of {cuts.batch_size:,}"
        ]

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
        learner = RolloutLearner(settings, factory, device, self._ranks)
        self._policy = learner.agent.policy
        self._rollout = learner.rollout
        self._acting = RolloutActing(self._policy, self._rollout.steps, self._num_envs)
        self._logged_of_learning: dict[str, float] = {}
        self._take_up(learner, self._policy, resumed)

    def step(self) -> None:
        """Steps every environment once, and learns when that fills the rollout."""
        self.act()
        self.gather()
        if self.due:
            self.learn()

    def act(self) -> None:
        """Chooses the actions and has the environments step."""
        self._stepping = True
        rollout, task, clock = self._rollout, self._schedule.tasks, self._telemetry.clock
        self._shown = self._policy.shown(self._vector.observation, task)
        with clock("act"):
            if rollout.filled == 0:
                self._acting.begin()
            self._action = self._acting.act(self._shown, rollout.filled)
        self._task, self._orders = task, self._schedule.advance()
        with clock("env"):
            self._vector.start(self._orders, self._action)

    def gather(self) -> None:
        """Waits for the environments and adds what the vector step brought to the rollout."""
        with self._telemetry.clock("env"):
            outcome = self._outcome()
        truncated, task = outcome.truncated, self._task
        if self._factory.episode_steps is not None:
            truncated = truncated | (self._orders.command == WorkerCommand.STEP_THEN_RESET)
        following = self._policy.shown(outcome.next_observation, task)
        self._rollout.add(self._shown, self._action, outcome.reward, following, outcome.terminated, truncated)
        self._episodes.add(task, outcome.reward, outcome.success, outcome.terminated | truncated)
        self._progress.step += self._settings.num_envs

    @property
    def due(self) -> bool:
        """Whether the rollout is full."""
        return self._rollout.filled == self._rollout.steps

    def learn(self) -> None:
        """Learns from the rollout, and empties it."""
        with self.learning():
            self.learner.learn(self.left, self.count_updates)

    @property
    def left(self) -> float:
        """Share of the training that was left when the rollout began: the last one still moves something."""
        begun = self._progress.step - self.learner.cuts.rollout
        return max(1.0 - begun / self._settings.total_steps, 0.0)

    def count_updates(self, updates: int) -> None:
        """Counts updates, and keeps the heartbeat fresh within a long phase of learning."""
        self._progress.updates += updates
        self._telemetry.heartbeat(updates=self._progress.updates)

    def _over(self) -> bool:
        """Returns whether all steps have been made and the last rollout has been learnt from."""
        return super()._over() and self._rollout.filled == 0

    def _row(self) -> dict[str, Any]:
        """Returns what is logged of the last rollout learnt from, also of one before a resumption."""
        if self.learner.losses:
            self._logged_of_learning = {
                **{name: float(value) for name, value in self.learner.losses.items()},
                "explained_variance": self.learner.explained_variance(),
                "learning_rate": float(self.learner.agent.learning_rate),
            }
        return self._logged_of_learning

    def _own_state(self) -> dict[str, Any]:
        """Returns what the loop adds to this rank's part of a checkpoint."""
        return {
            "acting": self._acting.state_dict(),
            "rollout": self._rollout.state_dict(),
            "sums": self.learner.agent.sums.clone(),
            "learning": self._row(),
        }

    def _restore(self, resumed: FoundCheckpoint) -> None:
        """Takes over what `_own_state` returned; the rollout only if its episodes go on."""
        state = resumed.parts["state"]
        self._logged_of_learning = state.get("learning", {})
        if "sums" in state:  # what has been learnt has those of rank 0
            self.learner.agent.continue_sums(state["sums"])
        if self._environments is not None:
            self._rollout.load_state_dict(state["rollout"])
            self._acting.load_state_dict(state["acting"])


class RolloutActing:
    """Draws actions for the environments.

    Args:
        policy: the networks that learn.
        steps: of a rollout.
        envs: rows of every call.
    """

    def __init__(self, policy: ActorCritic, steps: int, envs: int) -> None:
        device = policy.device
        self._shape = steps, envs
        self._policy = policy
        self._device = device
        weights = sum(parameter.numel() for parameter in policy.actor.parameters())
        on_host = device.type == "cpu" or acts_on_host(weights, envs)
        self._copy = None
        if on_host and device.type != "cpu":
            self._copy = copy.deepcopy(policy).cpu().requires_grad_(False)
        self._actor = self._copy or policy
        self._acts_on = torch.device("cpu") if on_host else device
        self._noise = torch.zeros(0)

    def begin(self) -> None:
        """Takes over the weights and draws the noise of a rollout."""
        self._noise = self._policy.head.draw_noise(*self._shape)
        self._look()

    def act(self, observation: npt.NDArray[np.float32], step: int) -> npt.NDArray[np.float32]:
        """Draws an action for each environment.

        Args:
            observation: (envs, observation_dim).
            step: of the rollout.

        Returns:
            Shape (envs, action_dim).
        """
        seen = torch.from_numpy(observation).to(self._acts_on)
        action = self._actor.sample(seen, self._noise[step].to(self._acts_on))
        array: npt.NDArray[np.float32] = action.cpu().numpy()
        return array

    def state_dict(self) -> dict[str, Any]:
        """Returns the noise of this rollout."""
        return {"noise": self._noise}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Takes over what `state_dict` returned, and the weights as they are now."""
        self._noise = state["noise"]
        self._look()

    def _look(self) -> None:
        if self._copy is not None:
            self._copy.load_state_dict(self._policy.state_dict())
