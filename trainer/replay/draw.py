"""Which transitions a batch is made of: uniform within each task, over all its lanes, with replacement.

A draw in [0, 1) becomes the rank of a transition in its task, the rank a lane and a place in its ring, and
the place a row. Draws are float64, for a float32 in [0, 1) has too few values to reach every row of a large
ring. Here is the same arithmetic twice: in numpy, whose operations cost half a microsecond on a batch where
torch's cost two, and on a device, where it can be captured in a CUDA graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.lanes import Layout
from trainer.replay.lanes import Lanes


def task_rota(layout: Layout) -> Tensor:
    """Returns the tasks of a batch's transitions, int64, shape (rotations, batch_size).

    The batch is split evenly; what does not divide rotates: 512 over 10 tasks are 51 each, and 2 more for
    two tasks that change with every batch.
    """
    even, rest = divmod(layout.batch_size, layout.num_tasks)
    evenly = torch.arange(layout.num_tasks).repeat_interleave(even).expand(layout.rotations, -1)
    turns = torch.arange(layout.rotations * rest).view(layout.rotations, rest) % layout.num_tasks
    return torch.cat([evenly, turns], dim=1).contiguous()


class HostDraw:
    """Draws on the host, from a generator of its own that torch's seeds.

    Args:
        layout: of the replay.
        lanes: its bookkeeping; `update` reads it.
    """

    def __init__(self, layout: Layout, lanes: Lanes) -> None:
        self._lanes = lanes
        self._steps = layout.episode_steps
        seed = int(torch.randint(2**63 - 1, ()))
        self._generator = np.random.Generator(np.random.SFC64(seed))
        self._rota = task_rota(layout)
        self._tasks = self._rota.numpy()
        self._rotation = 0
        self._draw = np.empty(layout.batch_size)
        self.place = torch.empty(layout.batch_size, dtype=torch.int64)
        """The rows of the batch, among all rows; overwritten by each `__call__`."""
        self._place = self.place.numpy()
        self.update()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self._rota.nbytes + self._draw.nbytes + self._place.nbytes

    def update(self) -> None:
        """Takes over what the lanes hold now."""
        lanes = self._lanes
        held = lanes.held
        self._sizes = held.reshape(-1, lanes.per_task).sum(1).astype(np.float64)
        self._begin = np.cumsum(held) - held  # the rank of each lane's oldest transition, over all tasks
        self._shift = (lanes.count - held) % lanes.ring
        if lanes.per_task > 1:
            self._shift -= self._begin

    def __call__(self) -> Tensor:
        """Draws a batch into `place` and returns its tasks."""
        lanes, place, draw, rotation = self._lanes, self._place, self._draw, self._rotation
        self._rotation = (rotation + 1) % len(self._rota)
        lane = self._tasks[rotation]
        self._generator.random(out=draw)
        np.multiply(draw, self._sizes.take(lane), out=draw)
        np.copyto(place, draw, casting="unsafe")
        if lanes.per_task > 1:
            np.add(place, self._begin.take(lane * lanes.per_task), out=place)
            lane = self._begin.searchsorted(place, "right") - 1
        ring = lanes.ring.take(lane)
        np.add(place, self._shift.take(lane), out=place)
        # past the ring's end it begins again: of x and x - ring, unsigned, the smaller one is in the ring
        unsigned = place.view(np.uint64)
        np.minimum(unsigned, np.subtract(place, ring).view(np.uint64), out=unsigned)
        np.add(place, np.floor_divide(place, self._steps), out=place)
        np.add(place, lanes.base.take(lane), out=place)
        return self._rota[rotation]

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that a later draw reads: none."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Returns what the coming draws depend on beside the lanes, as plain values."""
        generator = json.dumps(self._generator.bit_generator.state, default=np.ndarray.tolist)
        return {"rotation": self._rotation, "generator": generator}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned; that of a device has no generator, and ours goes on."""
        self._rotation = state["rotation"]
        if "generator" in state:
            generator = json.loads(state["generator"])
            generator["state"]["state"] = np.array(generator["state"]["state"], np.uint64)
            self._generator.bit_generator.state = generator


class DeviceDraw:
    """Draws on a device, from its default generator; static shapes, and nothing waits for the device.

    Args:
        layout: of the replay.
        lanes: its bookkeeping; `update` reads it.
        device: where the rows lie.
    """

    def __init__(self, layout: Layout, lanes: Lanes, device: torch.device) -> None:
        self._lanes = lanes
        self._steps = layout.episode_steps
        self._rota = task_rota(layout).to(device)
        self._rotation = torch.zeros(1, dtype=torch.int64, device=device)
        self._ring = torch.from_numpy(lanes.ring).to(device)
        self._base = torch.from_numpy(lanes.base).to(device)
        self._now = torch.zeros(3, lanes.base.size, dtype=torch.int64, device=device)
        self._draw = torch.empty(layout.batch_size, dtype=torch.float64, device=device)
        self.place = torch.empty(layout.batch_size, dtype=torch.int64, device=device)
        """The rows of the batch, among all rows; overwritten by each `__call__`."""
        self.update()

    @property
    def nbytes(self) -> int:
        """Bytes of the buffers."""
        return self._rota.nbytes + self._draw.nbytes + self.place.nbytes

    def update(self) -> None:
        """Takes over what the lanes hold now."""
        lanes = self._lanes
        held = lanes.held
        begin = np.cumsum(held) - held
        sizes = held.reshape(-1, lanes.per_task).sum(1).repeat(lanes.per_task)
        now = np.stack([sizes, begin, (lanes.count - held) % lanes.ring - begin])
        self._now.copy_(to_device(now, self._now.device))

    def __call__(self) -> Tensor:
        """Draws a batch into `place` and returns its tasks."""
        per_task = self._lanes.per_task
        size, begin, shift = self._now
        task = self._rota.index_select(0, self._rotation)[0]
        self._rotation.add_(1).remainder_(len(self._rota))
        lane = task * per_task
        place = begin[lane] + (self._draw.uniform_() * size[lane]).long()
        if per_task > 1:
            lane = torch.searchsorted(begin, place, right=True) - 1
        place = (place + shift[lane]) % self._ring[lane]
        torch.add(place + place // self._steps, self._base[lane], out=self.place)
        return task

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that a later draw reads."""
        return [self._rotation]

    def state_dict(self) -> dict[str, Any]:
        """Returns what the coming draws depend on beside the lanes and the device's generator."""
        return {"rotation": int(self._rotation)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned."""
        self._rotation.fill_(state["rotation"])


def to_device(array: npt.NDArray[Any], device: torch.device) -> Tensor:
    """Returns the array as a tensor on the device; the copy is awaited by the device, not by the host."""
    tensor = torch.from_numpy(array)
    # torch keeps the pinned block from being used again before the copy has been made
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
