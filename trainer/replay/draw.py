"""Draws the transitions of a batch: uniform within each task, over all its lanes, with replacement.

A draw in [0, 1) becomes the rank of a transition, and tables map the rank to a row. Draws are float64: a
float32 in [0, 1) has too few values to reach every row of a large ring. Here is the same arithmetic twice: in
numpy, whose operations cost half a microsecond on a batch where torch's cost two, and on a device, where it
can be captured in a CUDA graph.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.recipe.lanes import LaneLayout
from trainer.replay.lanes import Integers, Lanes
from trainer.replay.transfer import to_device

Sent = tuple[Tensor, npt.NDArray[Any]]
"""A tensor, and the array to copy into it."""
_BLOCK = 16
"""Batches that the host draws the random numbers of at once."""


def task_rota(layout: LaneLayout) -> Tensor:
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
        lanes: its bookkeeping.
        turn: which of the rotations is the first batch's.
    """

    def __init__(self, layout: LaneLayout, lanes: Lanes, turn: int = 0) -> None:
        self._tables = Tables(layout, lanes)
        self._steps = layout.episode_steps
        self._bits = np.random.PCG64(int(torch.randint(2**63 - 1, ())))
        self._generator = np.random.Generator(self._bits)
        self._draws = np.empty((_BLOCK, layout.batch_size))
        places = torch.empty(_BLOCK, layout.batch_size, dtype=torch.int64)
        self._places: Integers = places.numpy()
        self._place = places.unbind()
        self._batch = self._prepared = _BLOCK
        self._stretch = 1
        self._behind = False
        rota = task_rota(layout)
        self._task = rota.unbind()
        self._tasks: Integers = rota.repeat(1 + -(-_BLOCK // len(rota)), 1).numpy()
        self._rotation = turn % len(rota)

    def update(self) -> None:
        """Takes over what the lanes hold now."""
        self._tables.update()
        self._behind = False
        self._prepared, self._stretch = self._batch, 1

    def advance(self) -> list[Sent]:
        """Takes note that a vector step has been added; nothing is to be sent for it."""
        self._behind = True
        self._prepared, self._stretch = self._batch, 1
        return []

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Draws a batch: the rows it consists of and their tasks, valid until the next call."""
        if self._batch == self._prepared:
            self._prepare()
        place, task = self._place[self._batch], self._task[self._rotation]
        self._batch += 1
        self._rotation = (self._rotation + 1) % len(self._task)
        return place, task

    def _prepare(self) -> None:
        """Works out the coming batch, and the more of those after it the longer nothing has been added."""
        if self._behind:
            self._tables.advance()
            self._behind = False
        if self._batch == _BLOCK:
            self._generator.random(out=self._draws)
            self._batch = 0
        begin, end = self._batch, min(self._batch + self._stretch, _BLOCK)
        self._prepared, self._stretch = end, 2 * self._stretch
        tables, place = self._tables, self._places[begin:end]
        task = self._tasks[self._rotation : self._rotation + end - begin]
        size = tables.sizes[0] if tables.full else tables.sizes.take(task)
        np.copyto(place, self._draws[begin:end] * size, casting="unsafe")
        if tables.per_task == 1:
            np.add(place, (tables.begin + tables.shift).take(task), out=place)
        else:
            np.add(place, tables.begin.take(task * tables.per_task), out=place)
            lane = tables.begin.searchsorted(place, "right") - 1
            np.add(place, tables.shift.take(lane), out=place)
        np.add(place, tables.offset.take(place // self._steps), out=place)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that a later draw reads: none."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """Returns what the coming draws depend on beside the lanes, as plain values."""
        generator = deepcopy(self._bits)
        generator.advance(2**128 - self._draws.size)  # back to the start of the block
        return {"rotation": self._rotation, "batch": self._batch, "generator": json.dumps(generator.state)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned; that of a device has no generator, and ours goes on."""
        self._rotation = state["rotation"]
        if "generator" in state:
            self._bits.state = json.loads(state["generator"])
            self._generator.random(out=self._draws)
            self._batch = state["batch"]
        self.update()


class DrawSource(NamedTuple):
    """What the draws of a replay on a device consist of, all of which stay where they are.

    Attributes:
        rows: of the replay, float32.
        rota: tasks of a batch, int64 (rotations, batch).
        rotation: which of the rotations is the coming batch's, int64 (1,); a draw moves it on.
        lanes: of each lane the size of its task, `begin` and `shift` of `Tables`, int64 (3, lanes).
        offset: see `Tables`, int64.
        drawn: uniform in [0, 1), float64 (batch,).
        per_task: lanes of a task.
        steps: length of an episode.
    """

    rows: Tensor
    rota: Tensor
    rotation: Tensor
    lanes: Tensor
    offset: Tensor
    drawn: Tensor
    per_task: int
    steps: int


class BatchSampler(Protocol):
    """Does in one operation what this file and a gather do in many, to the bit."""

    def __call__(self, sources: Sequence[DrawSource], window: Tensor, task: Tensor) -> Callable[[], None]:
        """Returns what turns the numbers drawn of several replays into their batches.

        Args:
            sources: of the replays, which have one layout.
            window: written, (replays, batch, numbers in a transition).
            task: written, int64 (replays, batch).
        """


class DeviceDraw:
    """Draws on a device, from its default generator; static shapes, and nothing waits for the device.

    Args:
        layout: of the replay.
        lanes: its bookkeeping.
        device: where the rows lie.
        turn: which of the rotations is the first batch's.
    """

    def __init__(self, layout: LaneLayout, lanes: Lanes, device: torch.device, turn: int = 0) -> None:
        self._tables = Tables(layout, lanes)
        self._steps = layout.episode_steps
        self._rota = task_rota(layout).to(device)
        self._rotation = torch.full((1,), turn % len(self._rota), dtype=torch.int64, device=device)
        self._lanes = torch.zeros(3, lanes.base.size, dtype=torch.int64, device=device)
        self._offset = torch.zeros(self._tables.offset.shape, dtype=torch.int64, device=device)
        self._draw = torch.empty(layout.batch_size, dtype=torch.float64, device=device)
        self.update()

    def update(self) -> None:
        """Takes over what the lanes hold now."""
        self._tables.update()
        for tensor, array in self._changed(offset=True):
            tensor.copy_(to_device(array, tensor.device))

    def advance(self) -> list[Sent]:
        """Takes over what a vector step has added, once what is returned has been sent."""
        return self._changed(offset=self._tables.advance())

    def _changed(self, *, offset: bool) -> list[Sent]:
        tables = self._tables
        sizes = tables.sizes.repeat(tables.per_task)
        lanes = self._lanes, np.stack([sizes, tables.begin, tables.shift])
        return [lanes, (self._offset, tables.offset)] if offset else [lanes]

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Draws a batch: the rows it consists of and their tasks."""
        self.draw()
        return self.rows()

    def draw(self) -> None:
        """Draws the numbers of a batch."""
        self._draw.uniform_()

    def rows(self) -> tuple[Tensor, Tensor]:
        """Returns the rows that the numbers drawn stand for and their tasks, and moves the rotation on."""
        task = self._rota.index_select(0, self._rotation)[0]
        self._rotation.add_(1).remainder_(len(self._rota))
        return self._rows(task, self._draw, self._lanes, self._offset), task

    def source(self, rows: Tensor) -> DrawSource:
        """Returns what draws from these rows of a replay consist of."""
        own = self._rota, self._rotation, self._lanes, self._offset, self._draw
        return DrawSource(rows, *own, self._tables.per_task, self._steps)

    def _rows(self, task: Tensor, draw: Tensor, lanes: Tensor, offset: Tensor) -> Tensor:
        """Turns draws in [0, 1) into rows: ([seeds,] batch) all, with lanes (3, [seeds,] lanes)."""
        per_task = self._tables.per_task
        size, begin, shift = lanes
        lane = task * per_task
        rank = begin.gather(-1, lane) + (draw * size.gather(-1, lane)).long()
        if per_task > 1:
            lane = torch.searchsorted(begin, rank, right=True) - 1
        number: Tensor = rank + shift.gather(-1, lane)
        return number + offset.gather(-1, number // self._steps)

    def tensors(self) -> list[Tensor]:
        """Returns the tensors that a later draw reads."""
        return [self._rotation]

    def state_dict(self) -> dict[str, Any]:
        """Returns what the coming draws depend on beside the lanes and the device's generator."""
        return {"rotation": int(self._rotation)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned."""
        self._rotation.fill_(state["rotation"])
        self.update()


class DeviceDraws:
    """Draws a batch of each of several seeds at once, the same as each seed's own `DeviceDraw` would.

    Args:
        draws: of the seeds, of one layout.
        streams: within which the default generators are each seed's own.
    """

    def __init__(self, draws: Sequence[DeviceDraw], streams: Sequence[AbstractContextManager[None]]) -> None:
        self._draws = draws
        self._streams = streams

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Draws: the rows that each seed's batch consists of, and their tasks, (seeds, batch) both."""
        first, draws = self._draws[0], self._draws
        rotation = torch.cat([draw._rotation for draw in draws])
        task = first._rota.index_select(0, rotation)
        following = rotation.add(1).remainder_(len(first._rota))
        torch._foreach_copy_([draw._rotation for draw in draws], torch.split(following, 1))
        for draw, stream in zip(draws, self._streams, strict=True):
            with stream:
                draw.draw()
        lanes = torch.stack([draw._lanes for draw in draws], 1)
        offset = torch.stack([draw._offset for draw in draws])
        drawn = torch.stack([draw._draw for draw in draws])
        return first._rows(task, drawn, lanes, offset), task


class Tables:
    """Maps a transition's rank in its task to its row; a few numbers a lane, and one a slot.

    The transitions that can be drawn have ranks: task after task, in a task lane after lane, in a lane as
    they came. Rank + `shift` of the lane is a number counted from the start of the slot in which the lane's
    oldest transition lies, and each lane has a stretch of such numbers of its own. A number divided by the
    length of an episode tells the slot, and number + `offset` of the slot is the row: also past the ring's
    end, where it begins again.

    Attributes:
        per_task: lanes of a task.
        full: whether each lane holds as much as may be drawn from it, and will from now on.
        sizes: transitions that can be drawn of each task.
        begin: the rank of each lane's first transition.
        shift: see above, for each lane.
        offset: see above, for each slot.
    """

    def __init__(self, layout: LaneLayout, lanes: Lanes) -> None:
        self._lanes = lanes
        self._steps = layout.episode_steps
        self._slots: Integers = lanes.ring // self._steps
        self._columns: Integers = np.arange(self._slots.max())
        self._lines: Integers = np.arange(lanes.ring.size) * self._columns.size
        self._oldest_slot: Integers = np.full_like(self._slots, -1)
        self.per_task = lanes.per_task
        self.offset: Integers = np.zeros(self._lines.size * self._columns.size, np.int64)
        self.update()

    def update(self) -> bool:
        """Takes over what the lanes hold now; returns whether `offset` has changed."""
        lanes = self._lanes
        self._held = lanes.held
        self.full = bool((self._held == lanes.capacity).all())
        self.sizes: Integers = self._held.reshape(-1, lanes.per_task).sum(1)
        self.begin: Integers = np.cumsum(self._held) - self._held
        return self._follow()

    def advance(self) -> bool:
        """The same after vector steps have been added, which change little."""
        return self._follow() if self.full else self.update()

    def _follow(self) -> bool:
        lanes, steps = self._lanes, self._steps
        slot, phase = np.divmod(lanes.count - self._held, steps)
        self.shift: Integers = phase + self._lines * steps - self.begin
        if np.array_equal(slot, self._oldest_slot):
            return False
        self._oldest_slot = slot
        row = (slot[:, None] + self._columns) % self._slots[:, None] * (steps + 1)
        number = (self._lines[:, None] + self._columns) * steps
        self.offset[:] = (lanes.base[:, None] + row - number).ravel()
        return True
