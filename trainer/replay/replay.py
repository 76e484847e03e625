"""Replay stratified by task: rows on the training device, and a batch is one gather of pairs of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.recipe.lanes import LaneLayout
from trainer.replay.draw import BatchSampler, DeviceDraw, DeviceDraws, HostDraw
from trainer.replay.lanes import Integers, Lanes, deal_episodes
from trainer.replay.rows import Batch, ReplayRows
from trainer.replay.transfer import Sender, Staging, put_rows, to_device, to_host

Floats = npt.NDArray[np.float32]


class Replay:
    """The newest transitions of each task, equally many of each, in the rings of `trainer.recipe.lanes`.

    The batch is split evenly over the tasks, and what does not divide rotates; within a task it is uniform,
    with replacement. Its shapes never change, and nothing here waits for the device: on a GPU `sample` can be
    captured in a CUDA graph, unless the rows lie on the host.

    Args:
        num_tasks: tasks.
        num_envs: environments that fill it, scheduled as `Schedule` does.
        capacity: transitions over all tasks; each task has its equal share.
        batch_size: transitions in a batch over all tasks.
        episode_steps: length of every episode in steps; none ends earlier.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        device: where batches are wanted.
        on_host: keep the rows of a GPU's replay in the host's memory.
        turn: where in the rotation of tasks the first batch is. Replays at turns one after the other draw
            batches that are split evenly together, too.
        sampler: draws batches on a device in one operation; without it, many do the same.

    Attributes:
        window: (batch, numbers in a transition), where `sample` puts a batch on the device.
    """

    def __init__(
        self,
        num_tasks: int,
        num_envs: int,
        capacity: int,
        batch_size: int,
        episode_steps: int,
        observation_dim: int,
        action_dim: int,
        device: torch.device | str = "cpu",
        *,
        on_host: bool = False,
        turn: int = 0,
        sampler: BatchSampler | None = None,
    ) -> None:
        layout = LaneLayout(
            num_tasks, num_envs, capacity, batch_size, episode_steps, observation_dim, action_dim
        )
        device = torch.device(device)
        self._layout = layout
        self._lanes = Lanes(layout)
        staged = on_host and device.type == "cuda"
        home = torch.device("cpu") if staged else device
        shape = layout.rows, layout.row_width
        if home.type == "cpu":  # not pinned: a batch is gathered by the processor, and only that is sent
            # numpy asks the kernel for huge pages, which a random read is the faster for; torch does not
            self._rows = torch.from_numpy(np.zeros(shape, np.float32))
        else:
            self._rows = torch.zeros(shape, device=home)
        self._windows = self._rows.as_strided((layout.rows - 1, layout.window_width), (layout.row_width, 1))
        self._gathered = torch.empty(layout.batch_size, layout.window_width, device=home, pin_memory=staged)
        self._added = np.zeros((2, num_envs, layout.row_width), np.float32)
        host = home.type == "cpu"
        lanes = self._lanes
        self._draw = HostDraw(layout, lanes, turn) if host else DeviceDraw(layout, lanes, device, turn)
        self._staging = Staging(self._gathered, device) if staged else None
        self._sender = None if host else Sender(device)
        self._widths = [observation_dim, action_dim, 1, observation_dim]
        self.window = self._gathered if self._staging is None else self._staging.window
        observation, action, reward, following = torch.split(self.window, self._widths, dim=1)
        self._views = observation, action, reward[:, 0], following
        self._sampler = sampler
        self._task = torch.empty(layout.batch_size, dtype=torch.int64, device=self.window.device)
        alone = [self], [nullcontext()], self.window[None], self._task[None]
        self._fill = None if sampler is None else self.filling(*alone)

    @property
    def sizes(self) -> Integers:
        """Transitions held of each task, shape (num_tasks,)."""
        sizes: Integers = self._lanes.held.reshape(-1, self._lanes.per_task).sum(1)
        return sizes

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of a batch, on device and host; indices, well under 1 %, are not counted."""
        staging = 0 if self._staging is None else self._staging.nbytes
        return self._rows.nbytes + self._gathered.nbytes + staging

    def add(
        self,
        observation: Floats,
        action: Floats,
        reward: Floats,
        next_observation: Floats,
        task: npt.NDArray[np.integer[Any]],
        remaining: npt.NDArray[np.integer[Any]],
    ) -> None:
        """Writes one transition per environment; the arrays' first dimension is the environments'.

        Args:
            observation: before the action.
            action: what was done.
            reward: what it brought.
            next_observation: what it led to, also at the end of an episode.
            task: what each environment plays.
            remaining: steps left of each running episode, this one included.
        """
        stored, row = self._lanes.claim(task, remaining)
        begun, ended = self._added
        width = observation.shape[1]
        begun[:, :width] = observation
        begun[:, width:-1] = action
        begun[:, -1] = reward
        ended[:, :width] = next_observation
        data = self._added if row.size == len(stored) else self._added[:, stored]
        place, rows = np.concatenate([row, row + 1]), data.reshape(-1, begun.shape[1])
        changed = self._draw.advance()
        if self._sender is None:
            self._rows.numpy()[place] = rows
            return
        where, what, *values = self._sender.send([place, rows, *(array for _, array in changed)])
        self._rows.index_copy_(0, where, what)
        for (tensor, _), value in zip(changed, values, strict=True):
            tensor.copy_(value)

    def sample(self) -> Batch:
        """Draws a batch, valid until the next call. Every task must hold a transition."""
        if self._staging is not None:
            self._staging.wait()
        if self._fill is not None:
            self._fill()
            return Batch(*self._views, self._task)
        place, task = self._draw()
        torch.index_select(self._windows, 0, place, out=self._gathered)
        if self._staging is not None:
            task = self._staging.send(task)
        return Batch(*self._views, task)

    @staticmethod
    def filling(
        replays: Sequence[Any],
        streams: Sequence[AbstractContextManager[None]],
        window: Tensor,
        task: Tensor,
    ) -> Callable[[], None] | None:
        """Returns what draws a batch of each of several replays; None on the host.

        Args:
            replays: of one layout.
            streams: within which the default generators are each replay's own.
            window: written, (replays, batch, numbers in a transition).
            task: written, (replays, batch).
        """
        draws = [replay._draw for replay in replays if isinstance(replay._draw, DeviceDraw)]
        if not draws:
            return None
        if (sampler := replays[0]._sampler) is not None:
            sources = [draw.source(replay._rows) for draw, replay in zip(draws, replays, strict=True)]
            gather = sampler(sources, window, task)

            def fill() -> None:
                for draw, stream in zip(draws, streams, strict=True):
                    with stream:
                        draw.draw()
                gather()

            return fill
        joint, windows = DeviceDraws(draws, streams), [replay._windows for replay in replays]

        def fill_in_turn() -> None:
            places, tasks = joint()
            for own, place, part in zip(windows, places.unbind(), window.unbind(), strict=True):
                torch.index_select(own, 0, place, out=part)
            task.copy_(tasks)

        return fill_in_turn

    def batch(self, window: Tensor, task: Tensor) -> Batch:
        """Returns the batch that windows (seeds, batch, ...) with tasks (seeds, batch) are."""
        observation, action, reward, following = torch.split(window, self._widths, dim=-1)
        return Batch(observation, action, reward[..., 0], following, task)

    def tensors(self) -> list[Tensor]:
        """Returns what `sample` writes on a device and a later call reads."""
        return self._draw.tensors()

    def observations(self) -> Tensor:
        """Returns all observations held, shape (transitions, observation_dim)."""
        place = to_device(self._lanes.transitions(), self._rows.device)
        return self._rows.index_select(0, place)[:, : self._layout.observation_dim]

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the rows, as plain values."""
        return {
            "layout": asdict(self._layout),
            "count": self._lanes.count.tolist(),
            "first": self._lanes.first.tolist(),
            **self._draw.state_dict(),
        }

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether `load_state_dict` can take over the state; if not, `adopt` may."""
        return bool(state["layout"] == asdict(self._layout))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, from a replay of the same layout; then `put` the rows."""
        assert self.fits(state), f"a replay of another layout: {state['layout']}"
        self._lanes.count[:] = state["count"]
        self._lanes.first[:] = state["first"]
        self._lanes.forget()
        self._draw.load_state_dict(state)

    def position(self) -> list[int]:
        """Returns each lane's newest row, whose observation is there already and whose action is not yet."""
        return [int(row) for row in self._lanes.newest]

    def oldest(self) -> list[int]:
        """Returns the oldest row of each lane that a restored replay needs."""
        return [int(row) for row in self._lanes.oldest]

    def rows_since(self, mark: Sequence[int] | None) -> ReplayRows:
        """Returns what is new since an earlier `position`, or all there is, in the host's memory.

        The row of the mark itself is among it, for it had been begun only.
        """
        oldest, end = self._lanes.oldest, self._lanes.end
        begin = (oldest if mark is None else np.clip(mark, oldest, end)).tolist()
        return ReplayRows(begin, end.tolist(), to_host(self._rows, self._places(begin, end.tolist())))

    def put(self, rows: ReplayRows) -> None:
        """Writes rows back, those of the oldest piece first; rows not needed any more are passed over."""
        begin = np.clip(self._lanes.oldest, rows.begin, rows.end).tolist()
        end = np.clip(self._lanes.end, begin, rows.end).tolist()
        pieces = [
            data[start - first : stop - first]
            for (first, _, data), start, stop in zip(rows.lanes(), begin, end, strict=True)
        ]
        put_rows(self._rows, self._places(begin, end), np.concatenate(pieces))

    def cut(self) -> None:
        """Drops the running episodes' transitions, for environments that start new ones.

        Of these, one that is shorter than the others is stored only where its lane is empty. For
        `rows_since` all that stays is new.
        """
        self._lanes.cut()
        self._draw.update()

    def adopt(self, state: Mapping[str, Any], pieces: Iterable[ReplayRows]) -> None:
        """Takes over the whole episodes of a replay filled by another number of environments.

        Marks of that replay mean nothing here.

        Args:
            state: its `state_dict`; tasks, episodes and widths must be the same.
            pieces: all its rows, in order.
        """
        other = Replay(**state["layout"])
        other.load_state_dict(state)
        for piece in pieces:
            other.put(piece)
        other.cut()
        source, target = deal_episodes(other._lanes, self._lanes, self._layout)
        put_rows(self._rows, target, to_host(other._rows, source))
        self._draw.update()

    def _places(self, begin: Sequence[int], end: Sequence[int]) -> Integers:
        ranges = enumerate(zip(begin, end, strict=True))
        return np.concatenate([self._lanes.places(lane, *rows) for lane, rows in ranges])
