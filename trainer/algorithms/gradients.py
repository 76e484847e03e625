"""Gradients of a batch that is computed in parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def accumulate(losses: Iterable[Tensor], parameters: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Sums losses ([seeds]) and their gradients; the graph of one is gone before the next is made.

    At most two sets of gradients are held at once: the sums, and those of the last loss.
    """
    total: Tensor | None = None
    sums: list[Tensor] = []
    for loss in losses:
        # one number needs no weight, and PyTorch imports SymPy, 30 MB, to look at one that it is given
        weight = torch.ones_like(loss) if loss.dim() else None
        gradients = list(torch.autograd.grad(loss, parameters, weight))
        if total is None:
            total, sums = loss.detach(), gradients
        else:
            total = total + loss.detach()
            torch._foreach_add_(sums, gradients)
        del gradients
    assert total is not None
    return total, sums
