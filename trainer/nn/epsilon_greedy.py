"""The epsilon-greedy policy of Q-learning and its network, plain or dueling, with gradients written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from trainer.nn.lean import LeanActor, Numbers
from trainer.nn.perceptron import Perceptron
from trainer.nn.policy import ExploringActor, ObservationEncoder


class EpsilonGreedyPolicy(ExploringActor):
    """Takes the choice of the greatest value, and with probability epsilon any, all alike.

    An action is the index of a choice, as a float.

    Args:
        observation_dim: numbers in an observation.
        choices: how many there are to choose from.
        hidden: widths of the hidden layers, see `QNetwork`.
        dueling: see `QNetwork`.
        epsilon: at the start.

    Attributes:
        epsilon: the present one, a scalar on the device, which acting weights are copied with.
    """

    actor: QNetwork
    epsilon: Tensor

    def __init__(
        self, observation_dim: int, choices: int, *, hidden: Sequence[int], dueling: bool, epsilon: float
    ) -> None:
        super().__init__()
        self.action_dim, self.noise_dim = 1, 2
        self.encoder = ObservationEncoder(observation_dim, num_tasks=1, one_hot=False)
        self.actor = QNetwork(self.encoder.features, hidden, choices, dueling=dueling)
        self.register_buffer("epsilon", torch.tensor(epsilon))

    @torch.no_grad()
    def sample(self, observation: Tensor, task: Tensor, noise: Tensor) -> Tensor:
        """Returns choices (batch, 1).

        Args:
            observation: (batch, observation_dim).
            task: int64 (batch,), of no meaning: there is one.
            noise: (batch, 2), uniform in [0, 1): whether to take any choice, and which.
        """
        whether, which = noise.chunk(2, -1)
        any_choice = (which * self.actor.choices).floor()
        return torch.where(whether < self.epsilon, any_choice, self.mode(observation, task))

    @torch.no_grad()
    def mode(self, observation: Tensor, task: Tensor) -> Tensor:
        """Returns the choices of the greatest values, (batch, 1)."""
        values: Tensor = self.actor(self.encoder(observation, task))
        return values.argmax(-1, keepdim=True).float()

    def lean(self, rows: int) -> LeanActor:
        """Returns what draws as `sample` does, faster, for so many rows on the host."""
        weights, biases = [*self.actor.parameters()][::2], [*self.actor.parameters()][1::2]
        layers = [(weight.t(), bias) for weight, bias in zip(weights, biases, strict=True)]
        return LeanActor((self.encoder.mean, self.encoder.std), layers, rows, self._chosen)

    def _chosen(self, outputs: Numbers, noise: Numbers) -> Numbers:
        choices = self.actor.choices
        greatest = outputs[:, -choices:].argmax(-1)  # of a dueling network, which has the state's value first
        any_choice = np.floor(noise[:, 1] * choices)
        chosen = np.where(noise[:, 0] < self.epsilon.numpy(), any_choice, greatest)
        return chosen[:, None].astype(np.float32)

    def draw_noise(self, rows: int) -> Tensor:
        """Draws uniform noise (rows, 2) in [0, 1) from the host's default generator."""
        return torch.rand(rows, self.noise_dim)

    def uniform(self, rng: np.random.Generator, rows: int) -> npt.NDArray[np.float32]:
        """Draws choices (rows, 1), all alike."""
        return rng.integers(self.actor.choices, size=(rows, 1)).astype(np.float32)


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
        slopes = self.body.slopes(given, torch.cat([total, slope - total / self.choices], -1))
        slopes[-2] = slopes[-2] * self._within
        return slopes

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
