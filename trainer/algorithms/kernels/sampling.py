"""Draws and gathers batches of a replay in one kernel, the same ones as without it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from trainer.algorithms.kernels.launch import Launcher
from trainer.algorithms.kernels.nvrtc import KernelError
from trainer.recipe.lanes import LaneLayout
from trainer.replay.draw import BatchSampler, DeviceDraw, DrawSource
from trainer.replay.lanes import Lanes

_WARPS = 8
"""Of a block; each has a row."""


def sampler_of(launch: Launcher) -> BatchSampler:
    """Returns the sampler whose kernel something runs."""
    return partial(_Gather, launch)


class _Gather:
    def __init__(self, launch: Launcher, sources: Sequence[DrawSource], window: Tensor, task: Tensor) -> None:
        first, (seeds, batch, width) = sources[0], window.shape
        tensors = [[own for own in source if isinstance(own, Tensor)] for source in sources]
        assert all(own.is_contiguous() for source in tensors for own in source)
        assert window.is_contiguous()
        assert task.is_contiguous()
        addresses = [[own.data_ptr() for own in source] for source in tensors]
        table = torch.tensor(addresses, dtype=torch.int64, device=window.device)
        tickets = torch.zeros(seeds, dtype=torch.int32, device=window.device)
        shape = first.rows.shape[1], first.lanes.shape[1], first.per_task, first.steps, len(first.rota)
        self._launch = launch
        self._blocks = -(-batch // _WARPS), seeds, 1
        self._arguments = table, tickets, window, task, batch, width, *shape
        self._sources = sources  # whose addresses the table has

    def __call__(self) -> None:
        self._launch("sample", self._blocks, (32, _WARPS, 1), self._arguments)


def check_sampler(own: BatchSampler, device: torch.device) -> None:
    """Compares a sampler with what PyTorch draws, on a device, from no generator of a run.

    Raises:
        KernelError: it draws something else.
    """
    layout = LaneLayout(3, 7, 300, 40, 10, 5, 2)  # lanes of a task that are not alike
    lanes, generator = Lanes(layout), torch.Generator().manual_seed(0)
    lanes.count[:] = [13, 25, 40, 99, 101, 7, 50, 64, 38]
    ours, theirs = ([DeviceDraw(layout, lanes, device, turn) for turn in range(2)] for _ in range(2))
    shape = layout.rows, layout.row_width
    rows = [torch.randn(shape, generator=generator).to(device) for _ in ours]
    window = torch.empty(2, layout.batch_size, layout.window_width, device=device)
    task = torch.empty(2, layout.batch_size, dtype=torch.int64, device=device)
    sources, others = (
        [draw.source(of) for draw, of in zip(draws, rows, strict=True)] for draws in (ours, theirs)
    )
    gather = own(sources, window, task)
    fits: list[Tensor] = []
    for _ in range(layout.rotations + 1):
        for source, other in zip(sources, others, strict=True):
            other.drawn.copy_(torch.rand(layout.batch_size, generator=generator, dtype=torch.float64))
            source.drawn.copy_(other.drawn)
        gather()
        for draw, of, found, tasks in zip(theirs, rows, window, task, strict=True):
            place, wanted = draw.rows()
            transitions = of.as_strided((layout.rows - 1, layout.window_width), (layout.row_width, 1))
            fits += [found.eq(transitions[place]).all(), tasks.eq(wanted).all()]
    if not torch.stack(fits).all():
        raise KernelError("it draws other transitions than PyTorch does")
