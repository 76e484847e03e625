"""What a capture records: operations on fixed addresses, to be done again without the Python around them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._pytree import tree_leaves, tree_map

_REFUSED = (
    *("_local_scalar_dense", "nonzero", "masked_select", "unique", "bincount", "is_nonzero", "lift_fresh"),
    *("randperm", "multinomial", "equal.default", "allclose", "histogram", "linalg_svd", "linalg_eig"),
)
"""Operations that wait for the device or whose shapes depend on its numbers."""


class NotCapturableError(RuntimeError):
    """What CUDA answers to an operation that a capture does not allow."""

    def __init__(self, what: str) -> None:
        super().__init__(f"operation not permitted when stream is capturing: {what}")


def place_of(tensor: Tensor) -> int:
    """Returns what identifies the memory of a tensor."""
    return int(tensor.untyped_storage()._cdata)


def tensors_of(nest: Any) -> list[Tensor]:
    """Returns the tensors in a nest of arguments."""
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]


def written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    """Returns the arguments that an operation writes to, by its schema."""
    found: list[Tensor] = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            found += tensors_of(value)
    return found


class _Outside:
    """A tensor on memory that was there before the capture, which a graph knows by its address alone."""

    def __init__(self, tensor: Tensor) -> None:
        self._storage = StorageWeakRef(tensor.untyped_storage())
        self._dtype = tensor.dtype
        self._view = tensor.storage_offset(), tensor.size(), tensor.stride()

    def tensor(self, operation: str) -> Tensor:
        """Returns the tensor again.

        Raises:
            AssertionError: its memory has been freed, and could be another one's.
        """
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)
        assert storage is not None, f"a graph is replayed whose memory has been freed ({operation})"
        return torch.empty(0, dtype=self._dtype).set_(storage, *self._view)


@dataclass(frozen=True)
class Step:
    """An operation recorded; `draws` is the generator it draws from, if it does."""

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: list[Tensor]
    draws: Any
    reads: frozenset[Hashable]
    writes: frozenset[Hashable]


class Tape:
    """Records operations while they are done once, and then undoes what they have done.

    Args:
        run: does an operation, drawing from a generator if one is given.
        on_device: tells whether a tensor lies there; of others only numbers may come in, as they are now.
    """

    def __init__(self, run: Callable[..., Any], on_device: Callable[[Tensor], bool]) -> None:
        self._run = run
        self._on_device = on_device
        self.steps: list[Step] = []
        self._new: dict[int, Tensor] = {}
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._drawn: dict[int, tuple[Any, Any]] = {}

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], draws: Any) -> Any:
        """Does an operation and records it.

        Raises:
            NotCapturableError: it waits for the device, or its shapes depend on numbers there.
        """
        name = str(func)
        if any(refused in name for refused in _REFUSED):
            raise NotCapturableError(name)
        if name.startswith("aten.index") and any(each.dtype == torch.bool for each in tensors_of(args[1:2])):
            raise NotCapturableError(f"{name} with a mask")
        inputs, changed = tensors_of((args, kwargs)), written(func, args, kwargs)
        for tensor in changed:
            place = place_of(tensor)
            if place not in self._new and place not in self._before:
                whole = _whole(tensor)
                self._before[place] = whole, whole.clone()
        if draws is not None and id(draws) not in self._drawn:
            self._drawn[id(draws)] = draws, draws.state.clone()
        out = self._run(func, args, kwargs, draws)
        known = {place_of(tensor) for tensor in inputs}
        results = [each.detach() for each in tensors_of(out) if place_of(each) not in known]
        self._new |= {place_of(tensor): tensor for tensor in results}
        if results or changed:
            writes = frozenset(map(place_of, (*changed, *results)))
            held = tree_map(self._hold, (args, kwargs))
            self.steps.append(Step(func, *held, results, draws, frozenset(known), writes))
        return out

    def undo(self) -> None:
        """Puts back everything that was written to, and spoils what only a replay computes."""
        for whole, value in self._before.values():
            whole.copy_(value)
        for draws, state in self._drawn.values():
            draws.state = state
        for tensor in self._new.values():
            if tensor.is_floating_point():
                tensor.fill_(torch.nan)
        self._before, self._drawn = {}, {}

    def play(self, step: Step) -> None:
        """Does a recorded operation again, on the same memory."""
        name = str(step.func)
        args, kwargs = tree_map(
            lambda leaf: leaf.tensor(name) if isinstance(leaf, _Outside) else leaf, (step.args, step.kwargs)
        )
        found = tensors_of(self._run(step.func, args, kwargs, step.draws))
        fresh = found[len(found) - len(step.results) :]
        for own, value in zip(step.results, fresh, strict=True):
            if own.data_ptr() != value.data_ptr():
                own.copy_(value)

    def _hold(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if not leaf.dim() and not self._on_device(leaf):
            return leaf.clone()
        return leaf.detach() if place_of(leaf) in self._new else _Outside(leaf.detach())


def _whole(tensor: Tensor) -> Tensor:
    """Returns all memory of a tensor, as bytes."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
