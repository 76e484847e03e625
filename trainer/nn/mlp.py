"""A perceptron whose ensemble members and output heads are computed in one batched product a layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

_GAIN = {"he_uniform": 6.0, "fan_in_uniform": 1.0}
"""A hidden weight's bound is sqrt(gain / fan_in): of He et al. 2015, or of PyTorch's own linear layers."""


class EnsembleMLP(nn.Module):
    """An ensemble of equally shaped perceptrons with ReLU between the layers.

    With several heads the last layer computes the outputs of all heads, and each row keeps those of its
    own: the multi-head architecture of McLean et al. 2025. Hidden biases start at zero, the last layer's
    weights and biases uniformly within `output_bound`.

    Args:
        members: perceptrons in the ensemble.
        inputs: numbers in a row.
        hidden: widths of the hidden layers.
        outputs: numbers a member (and head) gives.
        heads: output heads.
        layer_norm: normalise each hidden layer before the ReLU, without learnt scale and shift.
        init: `he_uniform` or `fan_in_uniform`, for the hidden weights.
        output_bound: bound of the last layer's initial values.
    """

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
        sizes = [inputs, *hidden, heads * outputs]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
            last = layer == len(hidden)
            bound = output_bound if last else math.sqrt(_GAIN[init] / fan_in)
            self.weights.append(nn.Parameter(torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)))
            bias_bound = output_bound if last else 0.0
            bias = torch.empty(members, 1, fan_out).uniform_(-bias_bound, bias_bound)
            self.biases.append(nn.Parameter(bias))

    def forward(self, rows: Tensor, head: Tensor) -> Tensor:
        """Maps rows (batch, inputs) to float32 outputs (members, batch, outputs).

        Args:
            rows: the inputs, the same for each member.
            head: int64 (batch,), which head a row wants; not looked at with a single head.
        """
        values = rows.expand(self.weights[0].shape[0], -1, -1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.baddbmm(bias, values, weight)
            if layer < last:
                if self.layer_norm:
                    values = functional.layer_norm(values, values.shape[-1:])
                values = functional.relu_(values)
        values = values.float()
        if self.heads == 1:
            return values
        members, batch, _ = values.shape
        index = head.view(1, batch, 1, 1).expand(members, batch, 1, self.outputs)
        return values.view(members, batch, self.heads, self.outputs).gather(2, index).squeeze(2)
