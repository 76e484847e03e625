"""Tensors in pieces, for operations that a GPU computes of a list of tensors in one launch.

Such an operation gives a block of threads up to 65,536 numbers of one tensor. Two critics of four million
numbers keep 71 blocks busy so, of a device with 132 multiprocessors. Cut into pieces they keep 250 busy. What
is computed number by number stays the same to the bit; a norm is added up in another order.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

_MOST = 252
"""Tensors in a launch of fused Adam: `depth_to_max_tensors` in MultiTensorApply.cuh of PyTorch 2.13."""
_LARGE_LAUNCHES = (2, 13), 13
"""PyTorch and CUDA from which it is so: before, 36 tensors fill a launch, and pieces would make more."""
_BLOCK = 65_536
"""Numbers of a tensor that a block of threads computes at most."""
_LEAST = 2048
"""Numbers that a block computes at once: 512 threads, four each."""
_ALIGNED = 16
"""Numbers to whose multiple a piece is long, so that the next one can be read four numbers at a time."""


def piece(tensors: Sequence[Tensor]) -> int:
    """Returns the numbers in a piece of these tensors, so that one launch takes all; 0 to leave them whole.

    They stay whole on a processor, where a launch takes few tensors, and if they fill a GPU as they are.
    """
    if not (tensors[0].is_cuda and _launches_are_large()) or len(tensors) >= _MOST:
        return 0
    numbers = sum(tensor.numel() for tensor in tensors)
    size = max(
        _LEAST, -(-numbers // (_MOST - len(tensors)))
    )  # the last piece of each tensor is a shorter one
    return -(-size // _ALIGNED) * _ALIGNED if size < _BLOCK else 0


def cut(tensors: Sequence[Tensor], size: int) -> list[Tensor]:
    """Returns the pieces of tensors, of `size` numbers but for the last of each, or whole ones if it is 0.

    Raises:
        AssertionError: a tensor to be cut does not lie in one stretch of memory.
    """
    if not size:
        return list(tensors)
    assert all(tensor.is_contiguous() for tensor in tensors), "pieces are of contiguous tensors"
    return [own for tensor in tensors for own in torch.split(tensor.view(-1), size)]


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """Returns the Euclidean norm of all gradients together, a scalar."""
    return nn.utils.get_total_norm(cut(gradients, piece(gradients)), foreach=True)


def global_norm_of_each(gradients: Sequence[Tensor], learners: int) -> Tensor:
    """Returns the norm of all gradients of each learner, (learners,).

    Args:
        gradients: the learners' one after the other along the first axis.
        learners: how many.
    """
    size = piece(gradients)
    own = ((cut([each], size) for each in gradient.chunk(learners)) for gradient in gradients)
    in_turn = [each for parts in own for turn in zip(*parts, strict=True) for each in turn]
    norms = torch.stack(torch._foreach_norm(in_turn)).view(-1, learners)
    norm: Tensor = torch.linalg.vector_norm(norms, dim=0)
    return norm


def _launches_are_large() -> bool:
    torch_from, cuda_from = _LARGE_LAUNCHES
    cuda, version = torch.version.cuda, torch.__version__.split(".")[:2]
    return cuda is not None and int(cuda.split(".")[0]) >= cuda_from and (*map(int, version),) >= torch_from
