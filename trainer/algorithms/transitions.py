"""What a rollout is learnt from: its transitions, in one tensor."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

SCALARS = 4
"""Parts of a row that are one number: all after the action."""


class Transitions(NamedTuple):
    """Transitions with what the policy of their time thought of them; views of `Packed.rows`.

    Attributes:
        features: what the networks see, (rows, observation_dim).
        action: (rows, action_dim).
        log_density: of the action, (rows,).
        value: of the observation, (rows,).
        advantage: of the action, (rows,).
        target: for the value: value and advantage together, (rows,).
    """

    features: Tensor
    action: Tensor
    log_density: Tensor
    value: Tensor
    advantage: Tensor
    target: Tensor


class Packed(NamedTuple):
    """Transitions in one tensor, for to draw a batch from it is one gather.

    Where several learn at once, each has its own rows, along an axis before all others, and its own choice.

    Attributes:
        rows: (transitions, numbers of one).
        widths: of the parts of a row, in the order of `Transitions`.
    """

    rows: Tensor
    widths: tuple[int, ...]

    def batch(self, chosen: Tensor | None = None) -> Transitions:
        """Returns the transitions with these indices (batch,), or all."""
        rows = self.rows
        if chosen is not None and chosen.dim() == 1:
            rows = rows.index_select(0, chosen)
        elif chosen is not None:
            begins = torch.arange(len(rows), device=rows.device).unsqueeze(-1) * rows.shape[1]
            rows = rows.flatten(0, 1).index_select(0, (begins + chosen).flatten())
            rows = rows.view(*chosen.shape, -1)
        features, action, *scalars = torch.split(rows, list(self.widths), -1)
        return Transitions(features, action, *(scalar.squeeze(-1) for scalar in scalars))
