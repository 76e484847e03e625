"""A batch of each of several seeds at once, from their replays."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch

from trainer.replay.replay import Replay
from trainer.replay.rows import Batch
from trainer.replay.transitions import TransitionReplay


class ReplayGroup:
    """Draws from each replay what its own `sample` would have drawn.

    As with a replay alone, nothing waits for the device, and on a GPU `sample` can be captured in a CUDA
    graph, unless the rows lie on the host.

    Args:
        replays: of the seeds; of one kind and shape, their rows all on the device or all on the host.
        streams: within which the default generators are each seed's own.
    """

    def __init__(
        self,
        replays: Sequence[Replay | TransitionReplay],
        streams: Sequence[AbstractContextManager[None]],
    ) -> None:
        self._replays = replays
        self._streams = streams
        self._window = torch.stack([replay.window for replay in replays])
        self._task = torch.zeros(self._window.shape[:2], dtype=torch.int64, device=self._window.device)
        self._fill = replays[0].filling(replays, streams, self._window, self._task)

    def sample(self) -> Batch:
        """Draws a batch (seeds, batch, ...), always in the same tensors; valid until the next call."""
        if self._fill is None:
            tasks = []
            for replay, stream in zip(self._replays, self._streams, strict=True):
                with stream:
                    tasks.append(replay.sample().task)
            torch.stack([replay.window for replay in self._replays], out=self._window)
            torch.stack(tasks, out=self._task)
        else:
            self._fill()
        return self._replays[0].batch(self._window, self._task)
