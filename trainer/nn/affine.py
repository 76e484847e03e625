"""Products of layers on a CPU, where PyTorch chooses badly: by oneDNN, with one output, and with constants.

Of two critics the smaller value counts (Fujimoto et al. 2018), so each row of a batch has a gradient in one
of them alone. PyTorch's own pass backward multiplies the zeros of the other too, a twelfth of an update of
SAC: where parameters are constants, rows whose gradient is zero are skipped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def usable(rows: Tensor) -> bool:
    """Returns whether `affine` can compute these rows: float32 on the CPU, with oneDNN.

    oneDNN's float32 product has no public name: `torch.ops.mkldnn._linear_pointwise` is the one that compiled
    models call. Where it is missing, layers are computed by PyTorch's own operations.
    """
    return (
        rows.device.type == "cpu"
        and rows.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def affine(rows: Tensor, weight: Tensor, bias: Tensor, *, relu: bool) -> Tensor:
    """Computes rows @ weight + bias through oneDNN, then the ReLU if asked for; differentiable once in each.

    Args:
        rows: (batch, inputs).
        weight: (inputs, outputs).
        bias: (outputs,).
        relu: whether a ReLU follows.

    Returns:
        Shape (batch, outputs).
    """
    values: Tensor = _Affine.apply(rows, weight, bias, relu)  # type: ignore[no-untyped-call]
    return values


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor, relu: bool) -> Tensor:
        values = _product(rows, weight.t(), bias)
        if relu:
            values.relu_()  # not within the product: oneDNN's turns what is not a number into 0
        ctx.save_for_backward(rows, weight, values if relu else None)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight, rectified = ctx.saved_tensors
        if rectified is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, rectified, 0.0)
        to_rows, to_weight, to_bias, _ = ctx.needs_input_grad
        return (
            _product(gradient, weight) if to_rows else None,
            _weight_gradient(rows, gradient) if to_weight else None,
            gradient.sum(0) if to_bias else None,
            None,
        )


def _weight_gradient(rows: Tensor, gradient: Tensor) -> Tensor:
    """Returns rows^T @ gradient.

    Of two transposed factors oneDNN's wrapper copies the first: it is to be the narrower.
    """
    if rows.shape[1] <= gradient.shape[1]:
        return _product(rows.t(), gradient.t())
    return _product(gradient.t(), rows.t()).t()


def _product(left: Tensor, right: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns left @ right^T + bias."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, right, bias, "none", [], "")
    return product


def single_outputs(bias: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """Computes rows @ weight + bias of several members with one output each; differentiable once in each.

    MKL's batched product, which `torch.baddbmm` calls, takes 5 to 13 times as long for a single column.
    Gradients are what `torch.baddbmm`'s are to the bit, values up to their rounding.

    Args:
        bias: (members, 1, 1).
        rows: (members, batch, inputs).
        weight: (members, inputs, 1).

    Returns:
        Shape (members, batch, 1).
    """
    values: Tensor = _SingleOutputs.apply(bias, rows, weight)  # type: ignore[no-untyped-call]
    return values


class _SingleOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bias: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        members = zip(bias.unbind(), rows.unbind(), weight.unbind(), strict=True)
        return torch.stack([torch.addmm(*member) for member in members])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        to_bias, to_rows, to_weight = ctx.needs_input_grad
        return (
            gradient.sum(1, keepdim=True) if to_bias else None,
            gradient * weight.transpose(1, 2) if to_rows else None,
            torch.bmm(gradient.transpose(1, 2), rows).transpose(1, 2) if to_weight else None,
        )


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
        to_rows_of_all = gradient.new_zeros(*gradient.shape[:2], weights[0].shape[1])
        for member, (own, to_rows) in enumerate(zip(gradient, to_rows_of_all, strict=True)):
            counts = own.ne(0.0).any(-1).nonzero().squeeze(-1)  # also what is not a number
            flow = own[counts]
            for weight, values in zip(weights[:0:-1], hidden[::-1], strict=True):
                flow = flow @ weight[member].t()
                flow = torch.ops.aten.threshold_backward(flow, values[member][counts], 0.0)
            to_rows[counts] = flow @ weights[0][member].t()
        return to_rows_of_all, None, None, None
