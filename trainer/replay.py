"""Replay stratified by task: rows on the training device, a ring per task, few operations a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Batch(NamedTuple):
    """Transitions to learn from; none is terminal, for the tasks only truncate and are bootstrapped.

    Attributes:
        observation: (batch, observation_dim).
        action: (batch, action_dim).
        reward: (batch,).
        next_observation: (batch, observation_dim).
        task: int64 (batch,).
    """

    observation: Tensor
    action: Tensor
    reward: Tensor
    next_observation: Tensor
    task: Tensor


class Replay:
    """One ring of transitions per task, all in one tensor.

    The batch is split evenly over the tasks. What does not divide rotates: 512 over 10 tasks are 51 each
    and 2 more for two tasks that change with every batch. The shapes never change, and nothing here waits
    for the device.

    Args:
        num_tasks: tasks.
        capacity: transitions over all tasks; each task has its equal share.
        batch_size: transitions in a batch over all tasks.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        device: where the rows lie.
    """

    def __init__(
        self,
        num_tasks: int,
        capacity: int,
        batch_size: int,
        observation_dim: int,
        action_dim: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.num_tasks = num_tasks
        self.capacity = capacity // num_tasks
        self._widths = [observation_dim, action_dim, 1, observation_dim]
        self._rows = torch.zeros(num_tasks * self.capacity, sum(self._widths), device=device)
        self._written = np.zeros(num_tasks, np.int64)
        self._sizes = torch.zeros(num_tasks, dtype=torch.int64, device=device)
        even, self._rest = divmod(batch_size, num_tasks)
        self._even_tasks = torch.arange(num_tasks, device=device).repeat_interleave(even)
        self._rest_offsets = torch.arange(self._rest, device=device)
        self._rotation = torch.zeros((), dtype=torch.int64, device=device)

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Transitions held of each task, shape (num_tasks,)."""
        return np.minimum(self._written, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows on the device."""
        return self._rows.nbytes

    def add(
        self,
        observation: npt.NDArray[np.float32],
        action: npt.NDArray[np.float32],
        reward: npt.NDArray[np.float32],
        next_observation: npt.NDArray[np.float32],
        task: npt.NDArray[np.integer[Any]],
    ) -> None:
        """Writes one transition per environment; the arrays' first dimension is the environments'.

        A task may occur any number of times; its oldest transitions are overwritten when its ring is full.
        """
        packed = np.concatenate([observation, action, reward[:, None], next_observation], axis=1)
        ranks = np.zeros(len(task), np.int64)
        counts = np.zeros(self.num_tasks, np.int64)
        for i, t in enumerate(task):
            ranks[i] = counts[t]
            counts[t] += 1
        places = task * self.capacity + (self._written[task] + ranks) % self.capacity
        self._written += counts
        device = self._rows.device
        self._rows[torch.from_numpy(places).to(device)] = torch.from_numpy(packed).to(device)
        self._sizes.copy_(torch.from_numpy(self.sizes))

    def sample(self) -> Batch:
        """Draws a batch, uniformly with replacement within each task. Every task must hold a transition."""
        rest = (self._rotation + self._rest_offsets) % self.num_tasks
        self._rotation.add_(self._rest).remainder_(self.num_tasks)
        task = torch.cat([self._even_tasks, rest])
        size = self._sizes[task]
        # float64, for a float32 in [0, 1) has too few values to reach every row of a large ring
        draw = torch.rand(task.shape, dtype=torch.float64, device=task.device)
        rows = self._rows[task * self.capacity + (draw * size).long()]
        observation, action, reward, next_observation = torch.split(rows, self._widths, dim=1)
        return Batch(observation, action, reward[:, 0], next_observation, task)

    def observations(self) -> Tensor:
        """Returns all observations held, shape (rows, observation_dim)."""
        rows = self._rows.view(self.num_tasks, self.capacity, -1)
        held = [rows[task, :size] for task, size in enumerate(self.sizes)]
        return torch.cat(held)[:, : self._widths[0]]

    def state_dict(self) -> dict[str, Tensor]:
        """Returns what is held, on the CPU."""
        rows = self._rows.view(self.num_tasks, self.capacity, -1)
        held = [rows[task, :size] for task, size in enumerate(self.sizes)]
        return {
            "rows": torch.cat(held).cpu(),
            "written": torch.from_numpy(self._written.copy()),
            "rotation": self._rotation.cpu(),
        }

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Takes over what `state_dict` returned, from a replay of the same tasks, capacity and widths."""
        self._written[:] = state["written"].numpy()
        self._rotation.copy_(state["rotation"])
        rows = self._rows.view(self.num_tasks, self.capacity, -1)
        for task, held in enumerate(torch.split(state["rows"], self.sizes.tolist())):
            rows[task, : len(held)] = held.to(rows.device)
        self._sizes.copy_(torch.from_numpy(self.sizes))
