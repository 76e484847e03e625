"""A perceptron in several members and with several heads, computed in as few products as the device likes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.machine.processors import processor_name
from trainer.nn.affine import affine, frozen_layers, single_outputs, usable

PREFER_ONEDNN = torch.backends.cpu.get_cpu_capability() == "AVX512" and "Intel" not in processor_name()
"""Whether layers go through oneDNN where they can.

PyTorch gives float32 products on the CPU to MKL, which computes without AVX-512 on processors that are not
Intel's, at less than half of their speed. oneDNN, which PyTorch carries for bfloat16 and for compiled models,
uses it everywhere. On Intel's, and where there is no AVX-512, MKL is the faster one.
"""
_WORTH_A_CALL = 2**14
"""Size of a member's last hidden layer from which `single_outputs` saves more than its calls cost."""
_WORTH_SKIPPING = 2**16
"""Numbers in a hidden layer of a member from which fewer rows save more than picking them out costs."""
_GAIN = {"he_uniform": 6.0, "fan_in_uniform": 1.0, "pytorch": 1.0}
"""A hidden weight's bound is sqrt(gain / fan_in): of He et al. 2015, or of PyTorch's own linear layers."""


class EnsembleMLP(nn.Module):
    """An ensemble of equally shaped perceptrons with ReLU between the layers.

    With several heads the last layer computes the outputs of all heads, and each row keeps those of its
    own: the multi-head architecture of McLean et al. 2025. Hidden biases start at zero, the last layer's
    weights and biases uniformly within `output_bound`; with `pytorch` every layer starts as `nn.Linear` does.

    One made of several seeds' by `stacked` has `seeds * members` members, those of a seed side by side, and
    takes rows and heads with the seeds as their first dimension. The last layer is computed in float32 under
    autocast too.

    Args:
        members: perceptrons in the ensemble.
        inputs: numbers in a row.
        hidden: widths of the hidden layers.
        outputs: numbers a member (and head) gives.
        heads: output heads.
        layer_norm: normalise each hidden layer before the ReLU, without learnt scale and shift.
        init: `he_uniform` or `fan_in_uniform`, for the hidden weights; or `pytorch`, for all values; or
            `orthogonal`, for all weights with a gain of sqrt(2), and biases at zero.
        output_bound: bound of the last layer's initial values, but with `pytorch` and `orthogonal`.
    """

    head_ids: Tensor

    def __init__(
        self,
        members: int,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        *,
        heads: int = 1,
        layer_norm: bool = False,
        init: str = "he_uniform",
        output_bound: float = 3e-3,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.outputs = outputs
        self.layer_norm = layer_norm
        self.register_buffer("head_ids", torch.arange(heads), persistent=False)
        sizes = [inputs, *hidden, heads * outputs]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            if init == "orthogonal":
                weights = [
                    nn.init.orthogonal_(torch.empty(fan_in, fan_out), math.sqrt(2.0)) for _ in range(members)
                ]
                self.weights.append(nn.Parameter(torch.stack(weights)))
                self.biases.append(nn.Parameter(torch.zeros(members, 1, fan_out)))
                continue
            bound = bias_bound = math.sqrt(_GAIN[init] / fan_in)
            if init != "pytorch":
                last = layer == len(hidden)
                bound, bias_bound = (output_bound, output_bound) if last else (bound, 0.0)
            self.weights.append(nn.Parameter(torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)))
            bias = torch.empty(members, 1, fan_out).uniform_(-bias_bound, bias_bound)
            self.biases.append(nn.Parameter(bias))

    def forward(self, rows: Tensor, head: Tensor, *, frozen: bool = False) -> Tensor:
        """Maps rows (batch, inputs) to float32 outputs (members, batch, outputs).

        Of several seeds, it maps (seeds, batch, inputs) to (seeds, members, batch, outputs).

        Args:
            rows: the inputs, the same for each member.
            head: int64 (batch,) or (seeds, batch), which head a row wants; not looked at with a single head.
            frozen: take the parameters as constants, so that a gradient with respect to the rows costs none
                with respect to them.
        """
        weights, biases = list(self.weights), list(self.biases)
        if frozen:
            weights, biases = list(map(Tensor.detach, weights)), list(map(Tensor.detach, biases))
        compute = self._memberwise if PREFER_ONEDNN and usable(rows) else self._batched
        if frozen and compute == self._batched and self._skips_rows(rows):
            compute = self._skipping
        values = compute(rows, weights, biases)
        if rows.dim() > 2:
            values = values.view(len(rows), -1, *values.shape[1:])
        if self.heads == 1:
            return values
        values = values.view(*values.shape[:-1], self.heads, self.outputs)
        own = head[..., None, :, None, None] == self.head_ids[:, None]
        # a gather's backward is a scatter, which CUDA does in any order; this is exact and in order
        return torch.where(own, values, 0.0).sum(-2)

    def hidden(self, rows: Tensor) -> list[Tensor]:
        """Returns what each hidden layer gives on for rows (batch, inputs): (members, batch, width) each."""
        layers: list[Tensor] = []
        self._batched(rows, list(self.weights), list(self.biases), layers)
        return layers

    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Returns weight (inputs, outputs) and bias (outputs,) of each layer of the only member."""
        return [(weight[0], bias[0, 0]) for weight, bias in zip(self.weights, self.biases, strict=True)]

    def neurons(self, layers: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns those of the layers that `hidden` returns which are given on by neurons: all of them."""
        return layers

    def _batched(
        self, values: Tensor, weights: list[Tensor], biases: list[Tensor], seen: list[Tensor] | None = None
    ) -> Tensor:
        """Computes all members in one product a layer; adds what each hidden layer gives on to `seen`."""
        values = spread(values, weights[0].shape[0])
        last = len(weights) - 1
        for weight, bias in zip(weights[:last], biases[:last], strict=True):
            values = torch.baddbmm(bias, values, weight)
            if self.layer_norm:
                values = functional.layer_norm(values, values.shape[-1:])
            values = functional.relu_(values)
            if seen is not None:
                seen.append(values)
        return in_float32(output_layer, biases[last], values, weights[last])

    def _skips_rows(self, rows: Tensor) -> bool:
        """Returns whether gradients of rows that are zero are worth looking for."""
        size = rows.shape[-2] * self.weights[0].shape[-1]
        plain = rows.is_cpu and not self.layer_norm and not torch.is_autocast_enabled("cpu")
        return plain and len(self.weights[0]) > 1 and size >= _WORTH_SKIPPING

    def _skipping(self, rows: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
        """Computes all members as `_batched` does, and their gradients for those rows that have any."""
        return frozen_layers(spread(rows, weights[0].shape[0]), weights, biases, output_layer)

    def _memberwise(self, rows: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
        """Computes one member after the other, each layer through oneDNN."""
        members = []
        last = len(weights) - 1
        layers = [weight.unbind() for weight in weights], [bias.unbind() for bias in biases]
        for member, values in enumerate(of_members(rows, weights[0].shape[0])):
            for layer, (weight, bias) in enumerate(zip(*layers, strict=True)):
                hidden = layer < last
                values = affine(values, weight[member], bias[member][0], relu=hidden and not self.layer_norm)
                if hidden and self.layer_norm:
                    values = functional.relu_(functional.layer_norm(values, values.shape[-1:]))
            members.append(values)
        return torch.stack(members)


def spread(rows: Tensor, members: int) -> Tensor:
    """Returns the rows of each member, (members, batch, inputs), of rows ([seeds,] batch, inputs)."""
    if rows.dim() == 2:
        return rows.expand(members, -1, -1)
    return rows[:, None].expand(-1, members // len(rows), -1, -1).flatten(0, 1)


def of_members(rows: Tensor, members: int) -> list[Tensor]:
    """Returns each member's rows (batch, inputs), of rows ([seeds,] batch, inputs)."""
    if rows.dim() == 2:
        return [rows] * members
    return [own for own in rows.unbind() for _ in range(members // len(rows))]


def output_layer(bias: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    """Computes the last layer of all members: (members, batch, inputs) to (members, batch, outputs)."""
    members, inputs, outputs = weight.shape
    if outputs == 1 < members and values.is_cpu and values.shape[1] * inputs >= _WORTH_A_CALL:
        return single_outputs(bias, values, weight)
    return torch.baddbmm(bias, values, weight)


def in_float32(layer: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """Computes a network's last layer from these tensors in float32, whatever the precision of those before.

    A bfloat16 result has 8 bits: a value near 700 would be a multiple of 4, while rewards differ by less.
    Without autocast the result is unchanged.
    """
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return layer(*tensors)
    with torch.autocast(kind, enabled=False):
        return layer(*(tensor.float() for tensor in tensors))
