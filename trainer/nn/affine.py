"""A float32 layer on the CPU, forward and backward, through oneDNN in place of MKL.

PyTorch gives float32 products on the CPU to MKL, which computes without AVX-512 on processors that are not
Intel's, at less than half of their speed. oneDNN, which PyTorch carries for bfloat16 and for compiled
models, uses it everywhere. Where there is no AVX-512, MKL is the faster one. oneDNN's float32 product has no
public name: `torch.ops.mkldnn._linear_pointwise` is the one that compiled models call. Where it is missing,
layers are computed as before.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_AVX512 = torch.backends.cpu.get_cpu_capability() == "AVX512"


def preferred(rows: Tensor) -> bool:
    """Returns whether layers over these rows are to be computed here: they can be, and it is faster."""
    return _AVX512 and usable(rows)


def usable(rows: Tensor) -> bool:
    """Returns whether layers over these rows can be computed here: float32 on the CPU, with oneDNN."""
    return (
        rows.device.type == "cpu"
        and rows.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def affine(rows: Tensor, weight: Tensor, bias: Tensor, *, relu: bool) -> Tensor:
    """Computes rows @ weight + bias, then the ReLU if asked for; differentiable once in all three.

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
