"""A perceptron whose parameters are constants, on a CPU: the way back skips rows whose gradient is zero.

Of two critics the smaller value counts (Fujimoto et al. 2018), so each row of a batch has a gradient in one
of them alone. PyTorch's own way back multiplies the zeros of the other too: a twelfth of an update of SAC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Layer = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Computes bias, rows (members, batch, inputs) and weights to (members, batch, outputs)."""


def frozen_layers(rows: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor], last: Layer) -> Tensor:
    """Computes all members, with ReLU between the layers; differentiable once, in the rows alone.

    Args:
        rows: (members, batch, inputs).
        weights: of each layer, (members, inputs, outputs).
        biases: of each layer, (members, 1, outputs).
        last: computes the last layer.

    Returns:
        Shape (members, batch, outputs).
    """
    values: Tensor = _Frozen.apply(rows, list(weights), list(biases), last)  # type: ignore[no-untyped-call]
    return values


class _Frozen(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weights: list[Tensor], biases: list[Tensor], last: Layer) -> Tensor:
        hidden = []
        for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
            rows = torch.baddbmm(bias, rows, weight).relu_()
            hidden.append(rows)
        ctx.save_for_backward(*hidden, *weights)
        return last(biases[-1], rows, weights[-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        hidden, weights = saved[: len(saved) // 2], saved[len(saved) // 2 :]
        found = gradient.new_zeros(*gradient.shape[:2], weights[0].shape[1])
        for member, (own, to_rows) in enumerate(zip(gradient, found, strict=True)):
            counts = own.ne(0.0).any(-1).nonzero().squeeze(-1)  # also what is not a number
            flow = own[counts]
            for weight, values in zip(weights[:0:-1], hidden[::-1], strict=True):
                flow = flow @ weight[member].t()
                flow = torch.ops.aten.threshold_backward(flow, values[member][counts], 0.0)
            to_rows[counts] = flow @ weights[0][member].t()
        return found, None, None, None
