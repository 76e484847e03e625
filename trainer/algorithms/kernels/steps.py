"""Optimisers as kernels: every parameter of every seed in one launch, cut into chunks that a table lists."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer.algorithms.kernels.launch import Launcher
from trainer.algorithms.optimizers import AdamOfEach, AverageOfEach, GuardedAdam, GuardedAverage

_CHUNK = 4096
"""Numbers of a block: the critics of guide-mt10 are 1,060 then, eight for each multiprocessor of an H100."""
_THREADS = 256


class KernelStep:
    """The step of an optimiser, see `Step`; nothing it was made of may move.

    Args:
        launch: runs kernels.
        optimizer: of one seed, or of several.
        gradients: one per parameter; of several seeds, side by side along the first axis.
    """

    def __init__(self, launch: Launcher, optimizer: GuardedAdam, gradients: Sequence[Tensor]) -> None:
        self._launch = launch
        self._kept = optimizer, gradients
        members = optimizer.members if isinstance(optimizer, AdamOfEach) else [optimizer]
        first = members[0]
        self._seeds, self._parameters = len(members), len(first.parameters)
        own = [gradient.view(self._seeds, -1).unbind() for gradient in gradients]
        self._chunks, self._table = _table(
            [
                [
                    (parameter, of_seeds[seed], state["exp_avg"], state["exp_avg_sq"], state["step"])
                    for parameter, state, of_seeds in zip(member.parameters, member.state, own, strict=True)
                ]
                for seed, member in enumerate(members)
            ]
        )
        device = gradients[0].device
        counters = [state["step"] for member in members for state in member.state]
        assert all(counter.dtype == torch.float32 for counter in counters)
        self._counters = torch.tensor([counter.data_ptr() for counter in counters], device=device)
        self._parts = gradients[0].new_empty(self._seeds, self._chunks)
        self._tickets = torch.zeros(self._seeds, dtype=torch.int32, device=device)
        self._scale = torch.ones(self._seeds, device=device, dtype=torch.float32)
        self._max_norm = float(first.max_norm)
        assert isinstance(first.learning_rate, float), "a learning rate that changes is none of a kernel's"
        beta1, beta2 = first.constants["beta1"], first.constants["beta2"]
        self._constants = [
            first.learning_rate,
            beta1,
            math.log(beta1),
            beta2,
            math.log(beta2),
            float(first.constants["weight_decay"]),
            first.constants["eps"],
        ]

    def __call__(self, losses: Sequence[Tensor], blocked: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Takes a step, see `Step`."""
        norm, flag = self._parts.new_empty(self._seeds), torch.empty_like(self._scale)
        loss, other = [*losses, None][:2]
        given = [self._table, self._parts, self._tickets, loss, other, blocked]
        shared = _THREADS // 32 * norm.itemsize
        arguments = [*given, norm, flag, self._scale, self._max_norm]
        self._launch("gradient_norm", (self._chunks, self._seeds, 1), (_THREADS, 1, 1), arguments, shared)
        self._move(flag, self._scale)
        return norm, flag

    def follow(self, blocked: Tensor) -> None:
        """Takes a step without clipping, see `Step`."""
        self._move(blocked, None)

    def _move(self, blocked: Tensor, scale: Tensor | None) -> None:
        given = self._table, self._tickets, self._counters, self._parameters, blocked, scale, *self._constants
        self._launch("adam", (self._chunks, self._seeds, 1), (_THREADS, 1, 1), given)


def average(launch: Launcher, average: GuardedAverage) -> Callable[[Tensor], None]:
    """Returns what moves the targets of one seed or several, none of which may move to another address."""
    members = average.members if isinstance(average, AverageOfEach) else [average]
    pairs = [list(zip(member.targets, member.sources, strict=True)) for member in members]
    chunks, table = _table(pairs)

    def step(blocked: Tensor) -> None:
        extents = (chunks, len(members), 1), (_THREADS, 1, 1)
        launch("polyak", *extents, [table, blocked, float(members[0].tau)])

    return step


def _table(tensors: Sequence[Sequence[Sequence[Tensor]]]) -> tuple[int, Tensor]:
    """Cuts tensors into chunks.

    Args:
        tensors: of each seed, of each parameter, those that belong together, dense and of one size. One that
            is a single number stays whole.

    Returns:
        The chunks of a seed, and the addresses of all chunks, each followed by its size: int64 (seeds,
        chunks, tensors + 1).
    """
    rows = []
    for of_seed in tensors:
        for together in of_seed:
            assert all(tensor.is_contiguous() for tensor in together)
            size = together[0].numel()
            for start in range(0, size, _CHUNK):
                places = [t.data_ptr() + (start if t.numel() == size else 0) * t.itemsize for t in together]
                rows.append([*places, min(_CHUNK, size - start)])
    table = torch.tensor(rows, dtype=torch.int64, device=tensors[0][0][0].device)
    return len(rows) // len(tensors), table.view(len(tensors), -1, len(rows[0]))
