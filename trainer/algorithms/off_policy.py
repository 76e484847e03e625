"""The protocol of off-policy agents, and what TD3 and DQN share: state, checkpoints and guarded updates.

Everything that learns stays where it is on the device, and an update reads tensors and writes in place, with
static shapes and nothing that depends on the host, so that it can be captured as it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from trainer.algorithms.optimizers import GuardedAdam
from trainer.nn.policy import ExploringActor
from trainer.nn.stacking import alone
from trainer.replay import Batch


class StoredLearner:
    """What a learner consists of, as an optimiser step writes it and as a checkpoint has it.

    Attributes:
        optimizers: by name.
        remark: how updates are computed, for the run's record; empty where there is no choice.
    """

    remark = ""
    optimizers: dict[str, GuardedAdam]
    _networks: dict[str, nn.Module]
    """By the names that they are stored under."""
    _notes: dict[str, Tensor]
    """Further tensors that an update writes, by name."""

    def tensors(self) -> list[Tensor]:
        """Returns all that `update` writes to; none of them is ever replaced by another."""
        learnt = [parameter for network in self._networks.values() for parameter in network.parameters()]
        state = [tensor for optimizer in self.optimizers.values() for tensor in optimizer.tensors()]
        return [*(parameter.detach() for parameter in learnt), *state, *self._notes.values()]

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that is learnt, optimisers included."""
        return {
            **{name: alone(network.state_dict()) for name, network in self._networks.items()},
            "optimizers": {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()},
            **{name: tensor.clone() for name, tensor in self._notes.items()},
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over, in place, what `state_dict` of a learner of the same configuration returned."""
        for name, network in self._networks.items():
            network.load_state_dict(state[name])
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        for name, tensor in self._notes.items():
            tensor.copy_(state[name])


class OffPolicy(StoredLearner, ABC):
    """A learner: a policy, further networks, and their optimisers.

    An update whose loss or gradient is not finite is skipped on the device: no parameter, optimiser state or
    target changes.

    Args:
        policy: on its device.
        networks: those beside the policy, by the names that they are stored under.
        optimizers: by name.
        notes: tensors that an update writes besides, by name.
        reward_scale: factor on rewards.
        reward_factor: (num_tasks,) on the device, what each task's rewards are multiplied by besides; read
            anew by every update. None for 1.
        autocast: makes the context in which the networks are evaluated.
        micro_batches: parts in which a batch is computed, to save memory; what is learnt stays the same.
        average: returns the means of tensors over all learners that have an equal part of each batch.

    Attributes:
        turns: updates in a cycle, which differ; 1 if each is like the one before.
        joins: whether learners of several seeds can be joined.
        skipped: int64 (2,) on the device: updates skipped in all, and in a row now.
        micro_batches: parts of a batch; may be changed between updates.
    """

    turns = 1
    joins = False

    def __init__(
        self,
        policy: ExploringActor,
        networks: Mapping[str, nn.Module],
        optimizers: Mapping[str, GuardedAdam],
        notes: Mapping[str, Tensor],
        *,
        reward_scale: float,
        reward_factor: Tensor | None,
        autocast: Callable[[], AbstractContextManager[Any]],
        micro_batches: int,
        average: Callable[[Sequence[Tensor]], list[Tensor]],
    ) -> None:
        self.optimizers = dict(optimizers)
        self.skipped = torch.zeros(2, dtype=torch.int64, device=policy.encoder.mean.device)
        self.micro_batches = micro_batches
        self.reward_factor = reward_factor
        self._precision = autocast()
        self._networks = {"policy": policy, **networks}
        self._notes = {**notes, "skipped": self.skipped}
        self._reward_scale = reward_scale
        self._over_learners = average

    @abstractmethod
    def update(self, batch: Batch, turn: int = 0) -> dict[str, Tensor]:
        """Learns from one batch.

        Args:
            batch: transitions.
            turn: which kind of update this is, from 0 to `turns` - 1, one after the other.

        Returns:
            Scalars on the device, for the log. Those of a skipped update say why it was skipped.
        """

    def schedule(self, left: float) -> None:
        """Sets what changes with time: nothing, unless an algorithm says so.

        Args:
            left: share of the training that is left, from 1 to 0.
        """
        del left

    def by_task(self) -> dict[str, Tensor]:
        """Returns what each task has of its own, for the log, (num_tasks,) by name: nothing."""
        return {}

    def _parts(self, batch: Batch) -> list[Batch]:
        """Cuts a batch into `micro_batches` parts."""
        if self.micro_batches == 1:
            return [batch]
        parts = zip(*(tensor.chunk(self.micro_batches) for tensor in batch.tensors), strict=True)
        return [Batch(*part) for part in parts]

    def _td_target(self, batch: Batch, next_value: Tensor, gamma: float) -> Tensor:
        """Returns the temporal-difference targets (batch,), from the values (batch,) of what follows."""
        if batch.goes_on is not None:
            next_value = next_value * batch.goes_on
        reward = self._reward_scale * batch.reward
        if self.reward_factor is not None:
            reward = reward * self.reward_factor[batch.task]
        return reward + gamma * next_value

    def _count(self, blocked: Tensor, *, whole: bool = True) -> None:
        """Counts an update as skipped if `blocked` is 1.0.

        Args:
            blocked: a scalar on the device.
            whole: whether everything has been updated; only then does an update end those skipped in a row.
        """
        skipped = blocked.to(torch.int64)
        self.skipped.add_(skipped)
        if whole:
            self.skipped[1].mul_(skipped)


class OffPolicyAgent(Protocol):
    """A policy with everything that learns beside it.

    Attributes:
        skipped: int64 (2,) on the device: updates skipped in all, and in a row now.
        micro_batches: parts in which a batch is computed; may be changed between updates.
        remark: how updates are computed, for the run's record; empty where there is no choice.
    """

    skipped: Tensor
    micro_batches: int
    remark: str

    @property
    def policy(self) -> ExploringActor:
        """Acts."""

    @property
    def turns(self) -> int:
        """Updates in a cycle, which differ; 1 if each is like the one before."""

    @property
    def joins(self) -> bool:
        """Whether agents of several seeds can be joined by the algorithm's `group`."""

    def schedule(self, left: float) -> None:
        """Sets what changes with time, by the share of the training that is left, from 1 to 0."""

    def update(self, batch: Batch, turn: int = 0) -> dict[str, Tensor]:
        """Learns from one batch; returns numbers on the device, for the log.

        Args:
            batch: transitions.
            turn: the place of this update in the cycle, from 0 to `turns` - 1.
        """

    def by_task(self) -> dict[str, Tensor]:
        """Returns what each task has of its own, for the log, (num_tasks,) by name."""

    def tensors(self) -> list[Tensor]:
        """Returns all that `update` writes to; none of them is ever replaced by another."""

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that is learnt, optimisers included."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over, in place, what `state_dict` of an agent of the same configuration returned."""


class AgentGroup(Protocol):
    """Agents of several seeds whose updates are one, each with the result that it would have alone.

    Attributes:
        micro_batches: as an agent's.
    """

    micro_batches: int

    def update(self, batch: Batch) -> dict[str, Tensor]:
        """Learns from a batch of each, with the seeds as the first dimension."""

    def tensors(self) -> list[Tensor]:
        """Returns all that `update` writes to."""

    def leave(self) -> None:
        """Lets every agent go, with tensors of its own. The group is of no use afterwards."""
