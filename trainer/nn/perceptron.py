"""A plain perceptron with the orthogonal initialisation that PPO's authors use."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.nn.mlp import in_float32
from trainer.nn.stacking import aligned, empty_stack

_HIDDEN_GAIN = math.sqrt(2.0)


class Perceptron(nn.Module):
    """Linear layers with tanh or ReLU between them.

    Weights start orthogonal (Saxe et al. 2014) with a gain of sqrt(2) in the hidden layers, as in OpenAI's
    baselines; biases start at zero. Its gradients are written out: autograd's overhead would cost a small
    network more than the gradients themselves. With parameters that are stacked (see `trainer.nn.stacking`)
    it is several perceptrons, each with rows of its own.

    Args:
        inputs: numbers in a row.
        hidden: widths of the hidden layers.
        outputs: numbers of a result.
        activation: `tanh` or `relu`.
        output_gain: gain of the last layer.
    """

    def __init__(
        self, inputs: int, hidden: Sequence[int], outputs: int, *, activation: str, output_gain: float
    ) -> None:
        super().__init__()
        self._tanh = activation == "tanh"
        self._activate = torch.tanh_ if self._tanh else torch.relu_
        self.layers = nn.ModuleList(
            nn.Linear(fan_in, fan_out) for fan_in, fan_out in pairwise([inputs, *hidden, outputs])
        )
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            gain = output_gain if layer is self.layers[-1] else _HIDDEN_GAIN
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, rows: Tensor) -> Tensor:
        """Maps rows (..., inputs) to float32 results (..., outputs)."""
        for values in self._through(rows):
            rows = values
        return rows

    def trace(self, rows: Tensor) -> list[Tensor]:
        """Returns the rows (..., inputs), what each hidden layer makes of them, and the results."""
        return [rows, *self._through(rows)]

    @torch.no_grad()
    def slopes(self, given: Sequence[Tensor], slope: Tensor) -> list[Tensor]:
        """Returns the gradients of sum(slope * results) by each parameter, in the order of `parameters`.

        Args:
            given: what `trace` returned for rows (batch, inputs).
            slope: (batch, outputs).
        """
        slopes: list[Tensor] = []
        layers = list(self._parameters_of_layers())
        for number in range(len(layers) - 1, -1, -1):
            rows, (weight, _) = given[number].to(slope.dtype), layers[number]
            slopes[:0] = _product(slope.mT, rows).float(), slope.sum(-2).float()
            if number:
                slope = _product(slope, weight.to(slope.dtype)).to(given[number].dtype)
                backward = torch.ops.aten.tanh_backward if self._tanh else _relu_backward
                slope = backward(slope, given[number])
        return slopes

    def _through(self, rows: Tensor) -> Iterator[Tensor]:
        """Yields each layer's outputs, one after the other."""
        last = len(self.layers) - 1
        for number, (weight, bias) in enumerate(self._parameters_of_layers()):
            if number < last:
                rows = self._activate(_affine(rows, weight, bias))
            else:
                rows = in_float32(_affine, rows, weight, bias)
            yield rows

    def _parameters_of_layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        for layer in self.layers:
            yield layer.weight, layer.bias  # type: ignore[misc]


def _relu_backward(slope: Tensor, values: Tensor) -> Tensor:
    masked: Tensor = torch.ops.aten.threshold_backward(slope, values, 0.0)
    return masked


def _affine(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Returns rows @ weight^T + bias; of stacked parameters, for the rows (networks, ..., inputs) of each."""
    if weight.dim() == 2:
        return functional.linear(rows, weight, bias)
    flat = rows.flatten(1, -2)
    if _one_by_one(rows):
        values = empty_stack(len(weight), (flat.shape[1], weight.shape[1]), flat)
        for own in zip(
            bias.unbind(), aligned(flat).unbind(), weight.mT.unbind(), values.unbind(), strict=True
        ):
            torch.addmm(*own[:3], out=own[3])
    else:
        values = torch.baddbmm(bias.unsqueeze(1), flat, weight.mT)
    return values.view(*rows.shape[:-1], -1) if values.shape[:-1] != rows.shape[:-1] else values


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Returns left @ right, of matrices or of stacks of them."""
    if left.dim() == 2:
        return left.mm(right)
    if not _one_by_one(left):
        return left.bmm(right)
    values = empty_stack(len(left), (left.shape[1], right.shape[2]), left)
    for own in zip(aligned(left).unbind(), aligned(right).unbind(), values.unbind(), strict=True):
        torch.mm(*own[:2], out=own[2])
    return values


def _one_by_one(rows: Tensor) -> bool:
    """Returns whether the products of a stack are to be those that each network would compute alone.

    A batched product of the CPU's libraries gives other last bits, and wins little.
    """
    return rows.device.type == "cpu" and rows.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
