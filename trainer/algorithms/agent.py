"""What the off-policy loop asks of an agent, and of several that are joined."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from trainer.nn.policy import ExploringActor
from trainer.replay import Batch


class OffPolicyAgent(Protocol):
    """A policy with everything that learns beside it.

    Attributes:
        skipped: int64 (2,) on the device: updates skipped in all, and in a row now.
        micro_batches: parts in which a batch is computed; may be changed between updates.
    """

    skipped: Tensor
    micro_batches: int

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
