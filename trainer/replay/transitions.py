"""Replay of one environment whose episodes have any length: whole transitions in one ring.

The rings of `trainer.replay.replay` store each observation once, but for that every episode must have the
same length. Here each transition has a row of its own, with the next observation and whether it goes on.

There are two kinds because one would cost memory or promises. On Meta-World a transition takes 44 numbers
with shared observations and 84 as a whole: a million of MT10 are 176 MB and 336 MB of a GPU. Rings of shared
observations, on the other hand, lose their place with the first episode of another length. What both have in
common, how rows reach a device and what a checkpoint keeps of them, is in `transfer` and `rows`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from trainer.errors import CheckpointError
from trainer.recipe.lanes import Ring
from trainer.replay.rows import Batch, ReplayRows
from trainer.replay.transfer import Sender, Staging, put_rows, to_host

Floats = npt.NDArray[np.float32]


class TransitionReplay:
    """The newest transitions, drawn uniformly and with replacement.

    How many environments fill it makes no difference to it. As in `Replay`, nothing waits for the device, and
    on a GPU `sample` can be captured in a CUDA graph, unless the rows lie on the host.

    Args:
        capacity: transitions.
        batch_size: transitions in a batch.
        observation_dim: numbers in an observation.
        action_dim: numbers in an action.
        device: where batches are wanted.
        on_host: keep the rows of a GPU's replay in the host's memory.

    Attributes:
        window: (batch, numbers in a transition), where `sample` puts a batch on the device.
    """

    def __init__(
        self,
        capacity: int,
        batch_size: int,
        observation_dim: int,
        action_dim: int,
        device: torch.device | str = "cpu",
        *,
        on_host: bool = False,
    ) -> None:
        ring = Ring(capacity, batch_size, observation_dim, action_dim)
        device = torch.device(device)
        self._ring = ring
        self._count = 0
        staged = on_host and device.type == "cuda"
        home = torch.device("cpu") if staged else device
        shape = capacity, sum(ring.widths)
        if home.type == "cpu":
            self._rows = torch.from_numpy(np.zeros(shape, np.float32))  # numpy asks for huge pages
        else:
            self._rows = torch.zeros(shape, device=home)
        self._gathered = torch.empty(batch_size, sum(ring.widths), device=home, pin_memory=staged)
        self._staging = Staging(self._gathered, device) if staged else None
        self._sender = None if home.type == "cpu" else Sender(home)
        self._bits = np.random.PCG64(int(torch.randint(2**63 - 1, ())))
        self._generator = np.random.Generator(self._bits)
        self._size = torch.zeros((), dtype=torch.float64, device=home)
        self._draw = torch.empty(batch_size, dtype=torch.float64, device=home)
        self._task = torch.zeros(batch_size, dtype=torch.int64, device=home)
        self.window = self._gathered if self._staging is None else self._staging.window
        observation, action, reward, following, goes_on = torch.split(self.window, list(ring.widths), dim=1)
        self._views = observation, action, reward[:, 0], following
        self._goes_on = goes_on[:, 0]

    @property
    def sizes(self) -> npt.NDArray[np.int64]:
        """Transitions held, shape (1,): of the only task."""
        return np.array([self._held])

    @property
    def nbytes(self) -> int:
        """Bytes of the rows and of a batch, on device and host."""
        staging = 0 if self._staging is None else self._staging.nbytes
        return self._rows.nbytes + self._gathered.nbytes + staging

    @property
    def _held(self) -> int:
        return min(self._count, self._ring.capacity)

    def add(
        self,
        observation: Floats,
        action: Floats,
        reward: Floats,
        next_observation: Floats,
        terminated: npt.NDArray[np.bool_],
        truncated: npt.NDArray[np.bool_] | None = None,
    ) -> None:
        """Writes one transition per environment; the arrays' first dimension is the environments'.

        Args:
            observation: before the action.
            action: what was done.
            reward: what it brought.
            next_observation: what it led to, also at the end of an episode.
            terminated: whether nothing follows that; an episode that time cuts off is not terminated.
            truncated: whether time cuts the episode off; of no meaning here, for what follows has a value.
        """
        del truncated
        self._write(observation, action, reward, next_observation, ~terminated)

    def _write(
        self,
        observation: Floats,
        action: Floats,
        reward: Floats,
        next_observation: Floats,
        goes_on: npt.NDArray[Any],
    ) -> None:
        """Writes the columns of as many transitions as there are."""
        if not len(reward):
            return
        columns = observation, action, reward[:, None], next_observation, goes_on[:, None]
        rows = np.concatenate(columns, axis=1, dtype=np.float32)[-self._ring.capacity :]
        end = self._count + len(reward)
        place = self._places(end - len(rows), end)
        if self._sender is None:
            self._rows.numpy()[place] = rows
        else:
            self._rows.index_copy_(0, *self._sender.send([place, rows]))
        self._grow(end)

    def sample(self) -> Batch:
        """Draws a batch, valid until the next call. There must be a transition."""
        if self._staging is not None:
            self._staging.wait()
        if self._rows.device.type == "cpu":
            self._generator.random(out=self._draw.numpy())
        else:
            self._draw.uniform_()
        # float64, for a float32 in [0, 1) has too few values to reach every row of a large ring
        torch.index_select(self._rows, 0, (self._draw * self._size).long(), out=self._gathered)
        task = self._task if self._staging is None else self._staging.send(self._task)
        return Batch(*self._views, task, self._goes_on)

    @staticmethod
    def filling(
        replays: Sequence[Any],
        streams: Sequence[AbstractContextManager[None]],
        window: Tensor,
        task: Tensor,
    ) -> Callable[[], None] | None:
        """Returns what draws a batch of each of several replays, see `Replay.filling`."""
        rows, draws, sizes = (
            [getattr(replay, name) for replay in replays] for name in ("_rows", "_draw", "_size")
        )
        if rows[0].device.type == "cpu":
            return None
        torch.stack([replay._task for replay in replays], out=task)

        def fill() -> None:
            for draw, stream in zip(draws, streams, strict=True):
                with stream:
                    draw.uniform_()
            places = (torch.stack(draws) * torch.stack(sizes)[:, None]).long()
            for own, place, part in zip(rows, places.unbind(), window.unbind(), strict=True):
                torch.index_select(own, 0, place, out=part)

        return fill

    def batch(self, window: Tensor, task: Tensor) -> Batch:
        """Returns the batch that windows (seeds, batch, ...) with tasks (seeds, batch) are."""
        observation, action, reward, following, on = torch.split(window, list(self._ring.widths), dim=-1)
        return Batch(observation, action, reward[..., 0], following, task, on[..., 0])

    def tensors(self) -> list[Tensor]:
        """Returns what `sample` writes on a device and a later call reads: nothing."""
        return []

    def observations(self) -> Tensor:
        """Returns all observations held, shape (transitions, observation_dim)."""
        return self._rows[: self._held, : self._ring.observation_dim]

    def state_dict(self) -> dict[str, Any]:
        """Returns everything but the rows, as plain values."""
        state = json.dumps(self._bits.state)
        return {"layout": asdict(self._ring), "count": self._count, "generator": state}

    def fits(self, state: Mapping[str, Any]) -> bool:
        """Whether `load_state_dict` can take over the state."""
        return bool(state["layout"] == asdict(self._ring))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned, from a replay of the same shape; then `put` the rows."""
        assert self.fits(state), f"a replay of another shape: {state['layout']}"
        self._bits.state = json.loads(state["generator"])
        self._grow(state["count"])

    def position(self) -> list[int]:
        """Returns the row that comes next; those before it are final."""
        return [self._count]

    def oldest(self) -> list[int]:
        """Returns the oldest row that a restored replay needs."""
        return [self._count - self._held]

    def rows_since(self, mark: Sequence[int] | None) -> ReplayRows:
        """Returns what is new since an earlier `position`, or all there is, in the host's memory."""
        begin = max(self.oldest()[0], 0 if mark is None else mark[0])
        return ReplayRows([begin], [self._count], to_host(self._rows, self._places(begin, self._count)))

    def put(self, rows: ReplayRows) -> None:
        """Writes rows back, those of the oldest piece first; rows not needed any more are passed over."""
        (first, end, data) = next(rows.lanes())
        begin = min(max(first, self.oldest()[0]), end)
        put_rows(self._rows, self._places(begin, end), data[begin - first :])

    def cut(self) -> None:
        """Does nothing: a transition is whole whatever becomes of its episode."""

    def adopt(self, state: Mapping[str, Any], _pieces: Iterable[ReplayRows]) -> None:
        """Refuses a replay of another shape: the environment is another one.

        Raises:
            CheckpointError: always.
        """
        raise CheckpointError(
            f"the checkpoint's replay has another shape: {state['layout']}, not {asdict(self._ring)}",
            hint="the environment has changed since; start over in another --run-dir",
        )

    def _grow(self, count: int) -> None:
        self._count = count
        self._size.fill_(self._held)

    def _places(self, begin: int, end: int) -> npt.NDArray[np.int64]:
        return np.arange(begin, end) % self._ring.capacity
