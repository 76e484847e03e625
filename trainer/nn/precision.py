"""Computes in float32 whatever the precision of the layers before."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def in_float32(layer: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
    """Computes a network's last layer without autocast, from rows in float32.

    A bfloat16 result has 8 bits: a value near 700 would be a multiple of 4, while rewards differ by less.
    Without autocast the result is unchanged.

    Args:
        layer: maps rows (..., inputs) to (..., outputs).
        rows: what the last hidden layer gives.
    """
    kind = rows.device.type
    if not torch.is_autocast_enabled(kind):
        return layer(rows)
    with torch.autocast(kind, enabled=False):
        return layer(rows.float())
