"""The ranks of a run: what they tell one another. Alone, all of it costs nothing.

Tensors of a GPU travel by NCCL and can be captured in a CUDA graph; everything on the host by gloo. Every
rank has to make the same calls in the same order.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import PrefixStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import _abort_process_group
from torch.distributed.rendezvous import rendezvous

from trainer.errors import TrainerError
from trainer.ranks.place import ALONE, RankPlace
from trainer.ranks.watch import RankWatch

_Thing = TypeVar("_Thing")

_MEETING = datetime.timedelta(minutes=5)
"""For the ranks to find one another: an image may have to reach a node first."""
_WAITING = datetime.timedelta(days=7)
"""For a rank to wait for another, which may write a checkpoint. Whether it is gone, the watch knows."""


class RankLostError(TrainerError):
    """Another rank has failed or is gone."""


class Ranks:
    """This process among the ranks of its run. Use `Ranks.meet`, or `Ranks()` for one that is alone.

    Args:
        place: of this process.
        watch: knows why another is gone.

    Attributes:
        rank: of this process; rank 0 writes.
        size: how many there are.
    """

    def __init__(self, place: RankPlace = ALONE, watch: RankWatch | None = None) -> None:
        self.rank = place.rank
        self.size = place.size
        self._watch = watch

    @classmethod
    @contextmanager
    def meet(cls, place: RankPlace, device: torch.device) -> Iterator[Ranks]:
        """Lets the ranks find one another; leaving the context with an exception ends all of them.

        Args:
            place: of this process.
            device: where it learns.

        Raises:
            RankLostError: the others do not come, or one of them is gone.
        """
        if place.size == 1:
            yield cls()
            return
        url = f"env://?rank={place.rank}&world_size={place.size}"
        try:
            store, _, _ = next(rendezvous(url, timeout=_MEETING))
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("ranks", store),
                rank=place.rank,
                world_size=place.size,
                timeout=_WAITING,
            )
        except RuntimeError as error:
            raise RankLostError(
                f"rank {place.rank} of {place.size} did not find the others: {_line(error)}",
                hint="check that all were started, and that MASTER_ADDR and MASTER_PORT can be reached",
            ) from error
        watch = RankWatch(place, PrefixStore("watch", store.clone()))
        try:
            yield cls(place, watch)
        except BaseException as error:
            if not isinstance(error, RankLostError):
                watch.announce(_line(error) or type(error).__name__)
            watch.dismiss()
            _abort_process_group()  # to destroy it would wait for kernels that wait for a rank that is gone
            raise
        watch.dismiss()
        # NCCL waits here for every graph that has captured a message: runs have released theirs
        dist.destroy_process_group()

    @property
    def writes(self) -> bool:
        """Whether this is the rank that writes."""
        return self.rank == 0

    def average(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Returns the means over all ranks, in the shapes given; one message for all of them.

        Every rank gets the same numbers. What is not finite on one is so on all.
        """
        if self.size == 1:
            return list(tensors)
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        self._reduce(flat, dist.ReduceOp.SUM)
        flat /= self.size
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    @torch.no_grad()
    def spread(self, tensors: Sequence[Tensor]) -> None:
        """Gives all ranks, in place, what rank 0 has."""
        if self.size > 1:
            for tensor in tensors:
                with self._together():
                    dist.broadcast(tensor, 0)

    def most(self, number: int) -> int:
        """Returns the largest number that any rank has named."""
        if self.size == 1:
            return number
        held = torch.tensor([number])
        self._reduce(held, dist.ReduceOp.MAX)
        return int(held)

    def any(self, here: bool) -> bool:
        """Returns whether one of the ranks says so."""
        return self.most(int(here)) > 0

    def greatest(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Returns the largest that any rank has named of each number."""
        if self.size == 1:
            return numbers
        held = torch.from_numpy(numbers.copy())
        self._reduce(held, dist.ReduceOp.MAX)
        return held.numpy()

    def share(self, thing: _Thing) -> _Thing:
        """Returns what rank 0 has given; all wait for it."""
        if self.size == 1:
            return thing
        held = [thing]
        with self._together():
            dist.broadcast_object_list(held, 0)
        return held[0]

    def gather(self, thing: _Thing) -> list[_Thing]:
        """Returns to rank 0 what each rank has given, in their order, and nothing to the others."""
        if self.size == 1:
            return [thing]
        held: list[Any] | None = [None] * self.size if self.rank == 0 else None
        with self._together():
            dist.gather_object(thing, held)
        return held or []

    def gather_rows(self, rows: npt.NDArray[np.float32]) -> list[npt.NDArray[np.float32]]:
        """Returns to rank 0 the rows of each rank, (any number, width), and nothing to the others."""
        counts = self.gather(len(rows))
        if self.rank > 0:
            with self._together():
                dist.send(torch.from_numpy(np.ascontiguousarray(rows)), 0)
            return []
        gathered = [rows]
        for rank, count in enumerate(counts[1:], 1):
            held = np.empty((count, rows.shape[1]), np.float32)
            with self._together():
                dist.recv(torch.from_numpy(held), rank)
            gathered.append(held)
        return gathered

    def part(self) -> None:
        """Waits until all have come here; from then on each may end when it likes."""
        if self.size > 1:
            self.most(0)
            assert self._watch is not None
            self._watch.dismiss()

    def _reduce(self, tensor: Tensor, how: Any) -> None:
        if (
            tensor.is_cuda
        ):  # nothing is waited for, and what goes wrong while capturing is the capture's matter
            dist.all_reduce(tensor, how)
        else:
            with self._together():
                dist.all_reduce(tensor, how)

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            assert self._watch is not None
            raise RankLostError(f"rank {self.rank} ends: {self._watch.cause()}") from error


def _line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
