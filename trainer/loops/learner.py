"""What learns: the agent, its replay and their update as one call, fitted into the device's memory.

When the device's memory is full, the run falls back to ways of working that leave the science as it is: first
the replay moves to the host, then an update takes its batch in parts, with the same gradients. Evaluation
never uses the device. Each fallback is reported and stays with the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.algorithms.capture import CapturedUpdate, weak
from trainer.algorithms.off_policy import OffPolicyAgent
from trainer.algorithms.returns import ReturnScale
from trainer.envs.interface import EnvFactory
from trainer.envs.vector import StepOutcome
from trainer.loops.memory import Floats, make_replay, too_small
from trainer.machine.device import autocast
from trainer.ranks.parallel import Ranks
from trainer.recipe.algorithm import OffPolicyAlgorithm
from trainer.replay import Batch, Replay
from trainer.settings import TrainSettings

_MOST_PARTS = 16
"""Parts of a batch; smaller ones would save hardly any memory."""


class Learner:
    """The agent with its replay.

    Args:
        settings: what to do.
        factory: tells the sizes.
        device: where to learn.
        say: told of each memory fallback.
        fallback: see `memory_fallback`, of an earlier attempt.
        ranks: with whom it learns; all begin with the networks of rank 0.

    Attributes:
        agent: the networks.
        replay: the transitions; whole ones, on an environment that ends its episodes itself.
        batch: what was last learnt from, None before the first update; overwritten by the next.
        losses: what the agent's updates returned last, by name; overwritten by the next.
        turn: which kind of update is the next one, see `OffPolicyAgent.update`.
        device: where it learns.
        entry: of the algorithm.
        slower: why updates together with other seeds are slower than they could be.
    """

    def __init__(
        self,
        settings: TrainSettings,
        factory: EnvFactory,
        device: torch.device,
        say: Callable[[str], None],
        fallback: Mapping[str, Any] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        fallback = fallback or {"replay_on_host": False, "micro_batches": 1}
        values = settings.recipe.values
        self.device = device
        self._say = say
        self._values = values
        self._ranks = ranks or Ranks()
        entry = settings.recipe.entry
        assert isinstance(entry, OffPolicyAlgorithm)
        self.entry = entry
        self._returns = _return_scale(settings, device, self._ranks)
        self.agent: OffPolicyAgent = entry.agent(
            values,
            factory.observation_dim,
            factory.action_space,
            len(settings.tasks),
            device,
            partial(autocast, device, settings.precision),
            micro_batches=fallback["micro_batches"],
            reward_factor=self._returns.factor if self._returns else None,
            average=self._ranks.average if self._ranks.size > 1 else list,
        )
        self._ranks.spread(self.agent.tensors())
        self._make_replay = partial(make_replay, settings, factory, device, say)
        self.batch: Batch | None = None
        self.losses: dict[str, Tensor] = {}
        self.turn = 0
        self.slower = ""
        self._on_host = bool(fallback["replay_on_host"])
        try:
            self.replay = self._make_replay(on_host=self._on_host)
        except torch.OutOfMemoryError as fault:
            if self._on_host:
                raise too_small(fault) from fault
            self._on_host = True
            self.replay = self._make_replay(on_host=True)
            self._say_on_host()
        self._capture()

    @property
    def note(self) -> str:
        """Why updates are slower than they could be; empty where there is nothing to say."""
        return self.slower or next((update.note for update in self._updates if update.note), "")

    @property
    def remark(self) -> str:
        """What computes updates, for the run's record; empty on a processor."""
        plain = "updates are computed by PyTorch's operations" if self.device.type == "cuda" else ""
        return self.agent.remark or plain

    @property
    def memory_fallback(self) -> dict[str, Any]:
        """How this run works with the memory there is; plain values."""
        return {"replay_on_host": self._on_host, "micro_batches": self.agent.micro_batches}

    def update(self) -> dict[str, Tensor]:
        """Draws a batch and learns from it; returns `losses`.

        Raises:
            TrainerError: the device's memory is too small, also with all fallbacks.
        """
        while True:
            try:
                if self._on_host:
                    self.batch = self.replay.sample()
                self.losses = {**self.losses, **self._updates[self.turn]()}
                self.turn = (self.turn + 1) % self.agent.turns
                return self.losses
            except torch.OutOfMemoryError as full:
                fault = full.with_traceback(None)  # whose frames hold what had been computed so far
            self.fall_back(fault)

    def remember(
        self,
        observation: Floats,
        action: Floats,
        outcome: StepOutcome,
        task: npt.NDArray[np.integer[Any]],
        remaining: npt.NDArray[np.integer[Any]],
    ) -> None:
        """Takes in what a vector step brought; all arrays' first dimension is the environments'.

        Args:
            observation: before the action.
            action: what was done.
            outcome: what it led to.
            task: what each environment plays.
            remaining: steps left of each episode of a fixed length, this one included.
        """
        seen = observation, action, outcome.reward, outcome.next_observation
        if isinstance(self.replay, Replay):
            self.replay.add(*seen, task, remaining)
        else:
            self.replay.add(*seen, outcome.terminated, outcome.truncated)
        if self._returns:
            self._returns.add(outcome.reward, task, remaining)

    def fit_normalization(self) -> None:
        """Settles how observations are standardised, if the recipe wants it, by what all ranks have seen."""
        if self._values["normalize_observations"] != "warmup":
            return
        encoder, std_floor = self.agent.policy.encoder, self._values["observation_std_floor"]
        if self._ranks.size == 1:
            encoder.fit(self.replay.observations(), std_floor)
            return
        seen = self._ranks.gather_rows(self.replay.observations().cpu().numpy())
        if seen:
            encoder.fit(torch.from_numpy(np.concatenate(seen)), std_floor)
        self._ranks.spread([encoder.mean, encoder.std])

    def shared(self) -> list[Tensor]:
        """Returns what is the same on every rank, to the bit."""
        return self.agent.tensors()

    def by_task(self, tasks: Sequence[str]) -> dict[str, float]:
        """Returns numbers of each task, `<name>/<task>`: the agent's, and `reward_factor` where there is one.

        Waits for the device.
        """
        numbers = self.agent.by_task()
        if self._returns:
            numbers["reward_factor"] = self._returns.factor
        row: dict[str, float] = {}
        for name, values in numbers.items():
            for task, value in zip(tasks, values.tolist(), strict=True):
                row[f"{name}/{task}"] = value
        return row

    def returns_state(self) -> dict[str, Any] | None:
        """Returns what rewards are normalised by, for a checkpoint; None where they are not."""
        return self._returns.state_dict() if self._returns else None

    def restore_returns(self, state: Mapping[str, Any] | None, *, episodes_go_on: bool) -> None:
        """Takes over what `returns_state` returned, the running episodes only if they go on."""
        if self._returns and state:
            self._returns.load_state_dict(state)
            if not episodes_go_on:
                self._returns.forget_episodes()

    def fall_back(self, fault: torch.OutOfMemoryError) -> None:
        """Takes the next memory fallback.

        Raises:
            TrainerError: there is none.
        """
        parts = self.agent.micro_batches
        if self._ranks.size > 1:  # the others wait in the middle of the update for what will not come
            raise too_small(fault) from fault
        if not self._on_host:
            self.use_fallback(on_host=True, micro_batches=parts)
        elif parts < _MOST_PARTS:
            self.use_fallback(on_host=True, micro_batches=2 * parts)
        else:
            raise too_small(fault) from fault

    def use_fallback(self, *, on_host: bool, micro_batches: int) -> None:
        """Takes a memory fallback, and says so if it is a new one; drops what was captured."""
        if on_host and not self._on_host:
            state, rows = self.replay.state_dict(), self.replay.rows_since(None)
            del self.replay
            self._on_host = True
            self.replay = self._make_replay(on_host=True)
            self.replay.load_state_dict(state)
            self.replay.put(rows)
            self._say_on_host()
        if micro_batches != self.agent.micro_batches:
            self.agent.micro_batches = micro_batches
            self._say(f"the device's memory is full: an update takes its batch in {micro_batches} parts")
        self._capture()

    def moved(self) -> None:
        """Takes note that the agent's tensors lie elsewhere now: what was captured is of no use any more."""
        learn, written = weak(self._learn), weak(self._written)
        self._updates = [
            CapturedUpdate(learn, written, self.device, any_rank=self._ranks.any)
            for _ in range(self.agent.turns)
        ]

    def release(self) -> None:
        """Drops what was captured; see `CapturedUpdate.release`."""
        for update in self._updates:
            update.release()

    def _say_on_host(self) -> None:
        size = self.replay.nbytes / 2**30
        self._say(f"the device's memory is full: the replay ({size:.1f} GiB) lies in the host's memory")

    def _capture(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.batch = None
        self.moved()

    def _learn(self) -> dict[str, Tensor]:
        if not self._on_host:  # a draw on the host cannot be captured, but lies in the same tensors always
            self.batch = self.replay.sample()
        assert self.batch is not None
        return self.agent.update(self.batch, self.turn)

    def _written(self) -> list[Tensor]:
        return [*self.agent.tensors(), *self.replay.tensors()]


def _return_scale(settings: TrainSettings, device: torch.device, ranks: Ranks) -> ReturnScale | None:
    values = settings.recipe.values
    if values.get("normalize_rewards", "none") == "none":
        return None
    sizes = len(settings.tasks), settings.own_envs, values["episode_steps"]
    return ReturnScale(*sizes, values["gamma"], values["value_bound"], device, over_learners=ranks.greatest)
