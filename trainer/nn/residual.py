"""A residual, normalised perceptron, which stays trainable when wide."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from trainer.nn.affine import affine
from trainer.nn.mlp import EnsembleMLP, in_float32, of_members, output_layer, spread


class ResidualMLP(EnsembleMLP):
    """An ensemble with residual blocks, after BroNet (Nauman et al. 2024).

    The first width is a layer as in `EnsembleMLP`: affine, LayerNorm, ReLU. Each further one is a block:
    affine, LayerNorm, ReLU, affine, LayerNorm, and what went in is added. Unlike BroNet's, these LayerNorms
    have no scale and shift of their own, and weights start as `init` says.

    Args:
        members: perceptrons in the ensemble.
        inputs: numbers in a row.
        hidden: widths, all the same.
        outputs: numbers a member (and head) gives.
        heads: output heads.
        init: as for `EnsembleMLP`.
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
        init: str = "he_uniform",
        output_bound: float = 3e-3,
    ) -> None:
        if len(set(hidden)) != 1:
            raise ValueError(f"a bypass needs the same width all through, not {tuple(hidden)}")
        layers = [hidden[0], *(width for width in hidden[1:] for _ in range(2))]
        super().__init__(
            members,
            inputs,
            layers,
            outputs,
            heads=heads,
            layer_norm=True,
            init=init,
            output_bound=output_bound,
        )

    def neurons(self, layers: Sequence[Tensor]) -> Sequence[Tensor]:
        """Returns the layers that a ReLU ends: the sum with a bypass is no layer of neurons."""
        return [layers[0], *layers[1::2]]

    def _batched(
        self, values: Tensor, weights: list[Tensor], biases: list[Tensor], seen: list[Tensor] | None = None
    ) -> Tensor:
        def layer(number: int, rows: Tensor) -> Tensor:
            compute = output_layer if number == len(weights) - 1 else torch.baddbmm
            return compute(biases[number], rows, weights[number])

        return _through(layer, spread(values, weights[0].shape[0]), len(weights) - 1, seen)

    def _memberwise(self, rows: Tensor, weights: list[Tensor], biases: list[Tensor]) -> Tensor:
        parts = [weight.unbind() for weight in weights], [bias.unbind() for bias in biases]

        def member(which: int, own: Tensor) -> Tensor:
            def layer(number: int, values: Tensor) -> Tensor:
                return affine(values, parts[0][number][which], parts[1][number][which][0], relu=False)

            return _through(layer, own, len(weights) - 1)

        members = of_members(rows, weights[0].shape[0])
        return torch.stack([member(which, own) for which, own in enumerate(members)])


def _through(
    layer: Callable[[int, Tensor], Tensor], rows: Tensor, last: int, seen: list[Tensor] | None = None
) -> Tensor:
    """Computes all layers; adds what each hidden one gives on to `seen`, a block's second with the bypass."""
    values = functional.relu_(_normalised(layer(0, rows)))
    given = [values]
    for first in range(1, last, 2):
        inner = functional.relu_(_normalised(layer(first, values)))
        values = _normalised(layer(first + 1, inner)) + values
        given += [inner, values]
    if seen is not None:
        seen += given
    return in_float32(lambda rows: layer(last, rows), values)


def _normalised(values: Tensor) -> Tensor:
    return functional.layer_norm(values, values.shape[-1:])
