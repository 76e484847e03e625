"""Teaching off-policy learners in tests.

A `Make` makes a learner anew, always with the same weights; a `Draw` draws a batch of so many rows.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from trainer.algorithms.off_policy import OffPolicyAgent
from trainer.replay import Batch

Make = Callable[..., OffPolicyAgent]
Draw = Callable[[int], Batch]


def teach(agent: OffPolicyAgent, batches: Sequence[Batch], begin: int = 0) -> list[dict[str, Tensor]]:
    """Updates once with each batch, the turns one after the other; returns copies of what is said."""
    said = []
    for number, batch in enumerate(batches, begin):
        torch.manual_seed(number)
        losses = agent.update(batch, number % agent.turns)
        said.append({name: value.clone() for name, value in losses.items()})
    return said


def drawn(draw: Draw, count: int, rows: int = 12) -> list[Batch]:
    torch.manual_seed(1)
    return [draw(rows) for _ in range(count)]


def learnt(agent: OffPolicyAgent) -> dict[str, Any]:
    """What is learnt, without what is only counted and said."""
    state = copy.deepcopy(agent.state_dict())
    return {name: value for name, value in state.items() if name not in ("skipped", "said")}


class Pair:
    """Two learners in threads, who meet within each update."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=60)
        self._given: list[list[Tensor]] = [[], []]

    def average(self, rank: int) -> Callable[[Sequence[Tensor]], list[Tensor]]:
        """Returns what one of them averages by."""

        def average(tensors: Sequence[Tensor]) -> list[Tensor]:
            self._given[rank] = list(tensors)
            self._barrier.wait()
            mean = [(one + other) / 2 for one, other in zip(*self._given, strict=True)]
            self._barrier.wait()
            return mean

        return average
