"""A plain perceptron with the orthogonal initialisation that PPO's authors use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

_HIDDEN_GAIN = math.sqrt(2.0)


class Perceptron(nn.Module):
    """Linear layers with tanh or ReLU between them.

    Weights start orthogonal (Saxe et al. 2014) with a gain of sqrt(2) in the hidden layers, as in OpenAI's
    baselines; biases start at zero.

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
        self._activate = torch.tanh if activation == "tanh" else functional.relu
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
        *hidden, last = self.layers
        for layer in hidden:
            rows = self._activate(layer(rows))
        values: Tensor = last(rows)
        return values.float()
