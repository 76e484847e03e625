"""Values of all choices in a state, plain or dueling, with gradients that are written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainer.nn.perceptron import Perceptron


class QNetwork(nn.Module):
    """A perceptron with ReLU that gives the value of each choice.

    A dueling network (Wang et al. 2016) gives a state's value and each choice's advantage; the value of a
    choice is both together, less the mean advantage (equation 9). Its two streams have a last hidden layer
    each, computed as one of twice the width: the weights from one stream to the output of the other are zero,
    and have no gradient. All parameters start as those of `nn.Linear`.

    Args:
        inputs: numbers in a row.
        hidden: widths of the hidden layers; of a dueling network, the last one is that of each stream.
        choices: how many there are to choose from.
        dueling: whether it is a dueling network.
    """

    _within: Tensor

    def __init__(self, inputs: int, hidden: Sequence[int], choices: int, *, dueling: bool) -> None:
        super().__init__()
        self.choices = choices
        self.dueling = dueling
        *shared, last = hidden
        widths, outputs = ([*shared, 2 * last], 1 + choices) if dueling else (list(hidden), choices)
        self.body = Perceptron(inputs, widths, outputs, activation="relu", output_gain=1.0)
        for layer in self.body.layers:
            assert isinstance(layer, nn.Linear)
            layer.reset_parameters()
        within = torch.ones(outputs, widths[-1])
        if dueling:
            within[0, last:] = within[1:, :last] = 0.0
            weight, bias = list(self.parameters())[-2:]
            for parameter in (weight, bias):
                nn.init.uniform_(parameter, -1.0 / math.sqrt(last), 1.0 / math.sqrt(last))
            weight.data.mul_(within)
        self.register_buffer("_within", within, persistent=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Maps rows (batch, inputs) to the float32 values of all choices, (batch, choices)."""
        return self._combined(self.body(rows))

    def trace(self, rows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Returns what `slopes` needs of rows (batch, inputs), and the values (batch, choices)."""
        given = self.body.trace(rows)
        return given, self._combined(given[-1])

    @torch.no_grad()
    def slopes(self, given: Sequence[Tensor], slope: Tensor) -> list[Tensor]:
        """Returns the gradients of sum(slope * values) by each parameter, in the order of `parameters`.

        Args:
            given: the first that `trace` returned for rows (batch, inputs).
            slope: (batch, choices).
        """
        if not self.dueling:
            return self.body.slopes(given, slope)
        total = slope.sum(-1, keepdim=True)
        found = self.body.slopes(given, torch.cat([total, slope - total / self.choices], -1))
        found[-2] = found[-2] * self._within
        return found

    def hidden(self, rows: Tensor) -> list[Tensor]:
        """Returns what each hidden layer gives on for rows (batch, inputs): (1, batch, width) each."""
        return [values[None] for values in self.body.trace(rows)[1:-1]]

    def neurons(self, layers: Sequence[Tensor]) -> list[Tensor]:
        """Returns the layers that `hidden` returns, with the last one of each stream by itself."""
        *shared, last = layers
        return [*shared, *last.chunk(2, -1)] if self.dueling else [*shared, last]

    def _combined(self, outputs: Tensor) -> Tensor:
        if not self.dueling:
            return outputs
        value, advantage = torch.split(outputs, [1, self.choices], -1)
        return value + (advantage - advantage.mean(-1, keepdim=True))
