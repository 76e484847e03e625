"""What every loop looks out for: numbers that are not finite, too small a device, ranks that differ."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from torch import Tensor

from trainer.errors import DivergedError, TrainerError
from trainer.parallel import Ranks

_MOST_SKIPPED = 100
"""Updates in a row that may be skipped because their numbers are not finite."""


def troubled(skipped: Tensor) -> bool:
    """Returns whether the last updates were skipped, one after the other; waits for the device.

    Args:
        skipped: updates skipped in all, and in a row now.
    """
    return int(skipped[1]) >= _MOST_SKIPPED // 10


def check_finite(skipped: Tensor) -> None:
    """Looks whether learning has come to an end; waits for the device.

    Raises:
        DivergedError: update after update was skipped.
    """
    in_a_row = int(skipped[1])
    if in_a_row >= _MOST_SKIPPED:
        raise DivergedError(
            f"{in_a_row} updates in a row had a loss or gradient that is not finite",
            hint="a lower learning rate or --set max_grad_norm=1.0 (with --unlock) may help",
        )


def too_small(fault: Exception) -> TrainerError:
    """Returns the error of a device whose memory does not hold the run."""
    return TrainerError(
        f"the device's memory is too small for this recipe: {str(fault).splitlines()[0]}",
        hint="ask for a larger GPU, or free the one that others use too",
    )


def fingerprint(tensors: Sequence[Tensor]) -> str:
    """Returns the sha256 of what tensors hold; waits for the device."""
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()


def align(ranks: Ranks, tensors: Sequence[Tensor]) -> bool:
    """Gives all ranks what rank 0 has, in place, if it is not the same to the bit.

    It should be, for all take the same steps; a device that adds up otherwise than others would end that.

    Returns:
        Whether it was not.
    """
    if ranks.size == 1:
        return False
    own = fingerprint(tensors)
    differs = ranks.any(own != ranks.share(own))
    if differs:
        ranks.spread(tensors)
    return differs
