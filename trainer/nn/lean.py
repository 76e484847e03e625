"""What a small policy's `sample` computes, in as few operations as it takes on the host.

A few rows through a small network cost the arithmetic of three products and, in `sample`, thirty operations
around them. Here are the products, into memory of their own, and NumPy for what is left, whose operations on
a few numbers take half of PyTorch's time. Results differ from those of `sample` in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Numbers = npt.NDArray[np.floating[Any]]
Explore = Callable[[Numbers, Numbers], Numbers]
"""Turns a network's outputs (rows, outputs) and noise (rows, noise_dim) into actions (rows, action_dim)."""


class LeanActor:
    """Draws actions to explore with, on the host, by a perceptron with ReLU between its layers.

    It reads the policy's tensors where they lie. A task's one-hot id times the first layer's weights is a
    row of these: with the bias it makes a table of the tasks' biases, which `refresh` computes.

    Args:
        statistics: mean and standard deviation of observations, (observation_dim,) each.
        layers: weight (inputs, outputs) and bias (outputs,) of each layer. The first one's inputs are an
            observation and, where the policy is shown it, the task's id.
        rows: of every call.
        explore: see `Explore`; given what the row's own head says.
        heads: of the network, whose outputs lie side by side in the last layer.
    """

    def __init__(
        self,
        statistics: tuple[Tensor, Tensor],
        layers: Sequence[tuple[Tensor, Tensor]],
        rows: int,
        explore: Explore,
        *,
        heads: int = 1,
    ) -> None:
        (first, bias), *rest = ((weight.detach(), bias.detach()) for weight, bias in layers)
        mean, std = (statistic.detach().numpy() for statistic in statistics)
        self._mean, self._std = mean, std
        self._weight, self._ids = first[: len(mean)], first[len(mean) :]
        self._bias, self._table = bias, torch.empty_like(self._ids)
        self._rest = [(*layer, first.new_empty(rows, len(layer[1]))) for layer in rest]
        self._scaled = first.new_empty(rows, len(mean))
        self._scaled_array = self._scaled.numpy()
        self._hidden = first.new_empty(rows, len(bias))
        last = self._rest[-1][-1] if self._rest else self._hidden
        self._given: Numbers = last.numpy().reshape(rows, heads, -1)
        self._numbers = np.arange(rows)
        self._heads = heads
        self._explore = explore
        self.refresh()

    def refresh(self) -> None:
        """Takes note that the policy's tensors have other numbers."""
        if len(self._ids):
            torch.add(self._ids, self._bias, out=self._table)

    def __call__(self, observation: Numbers, task: npt.NDArray[np.integer[Any]], noise: Numbers) -> Numbers:
        """Returns actions (rows, action_dim), in new memory.

        Args:
            observation: (rows, observation_dim).
            task: (rows,).
            noise: (rows, noise_dim), as the policy draws it.
        """
        np.subtract(observation, self._mean, out=self._scaled_array)
        np.divide(self._scaled_array, self._std, out=self._scaled_array)
        values = self._hidden
        if len(self._ids):
            torch.index_select(self._table, 0, torch.from_numpy(task), out=values)
            values.addmm_(self._scaled, self._weight)
        else:
            torch.addmm(self._bias, self._scaled, self._weight, out=values)
        for weight, bias, following in self._rest:
            torch.addmm(bias, values.relu_(), weight, out=following)
            values = following
        given = self._given[:, 0] if self._heads == 1 else self._given[self._numbers, task]
        return self._explore(given, noise)
