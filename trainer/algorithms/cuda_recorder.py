"""Captures work as a CUDA graph, each graph on a stream that no other live graph has.

cuBLAS keeps a workspace for each stream, whose address a graph remembers. Two graphs of one stream would
write to the same workspace when they are replayed beside each other, and the first to be destroyed would
free the other's (pytorch/pytorch#193402). So a recorder keeps its stream for as long as its graph lives.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

HIGH_PRIORITY = -1
"""Of a stream whose kernels go before those of the others, `torch.cuda.Stream`."""

_free: dict[tuple[int | None, int], list[torch.cuda.Stream]] = defaultdict(list)
"""Streams of recorders that are gone, by device and priority: PyTorch has 32, and then begins again."""


class CudaRecorder:
    """Records on a CUDA device.

    Args:
        device: the device.
        generators: from which the work draws, beside the device's default one.
        priority: of the kernels recorded, see `torch.cuda.Stream`.

    Attributes:
        stream: on which the work is recorded; nobody else's until this recorder is gone.
    """

    def __init__(
        self, device: torch.device, generators: Sequence[torch.Generator] = (), priority: int = 0
    ) -> None:
        self._device = device
        self._further = generators
        self._graph: torch.cuda.CUDAGraph | None = None
        place = device.index, priority
        self.stream: torch.cuda.Stream = (
            _free[place].pop() if _free[place] else torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        )
        weakref.finalize(self, _free[place].append, self.stream)

    def generator_state(self) -> Tensor:
        """Returns the states of the device's default generator and of the others, one after the other."""
        return torch.stack([generator.get_state() for generator in self._generators()])

    def set_generator_state(self, state: Tensor) -> None:
        """Sets the generators to what `generator_state` returned."""
        for generator, own in zip(self._generators(), state, strict=True):
            generator.set_state(own.clone())  # which looks for a state where the memory begins

    def warm_up(self, work: Callable[[], object]) -> None:
        """Does the work on the stream, which gives it its workspace, and waits for it."""
        # a graph that had the stream before may still be at work with the same workspace
        torch.cuda.synchronize(self._device)
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            # optimisers that can be captured wonder why they are not, which they soon will be
            warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
            work()
        torch.cuda.synchronize(self._device)

    def record(self, work: Callable[[], object]) -> None:
        """Captures the work, all of whose memory then belongs to the graph."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            for generator in self._further:
                graph.register_generator_state(generator)
            # thread_local: what telemetry's thread may ask of the driver meanwhile spoils nothing
            capture = torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local")
            with _without_collection(), capture:
                work()
        except BaseException:
            # a capture that breaks off leaves its stream current and the generator's state in use by it
            torch.cuda.set_stream(current)
            for generator in self._generators():
                generator.graphsafe_set_state(generator.clone_state())
            raise
        self._graph = graph

    def replay(self) -> None:
        """Launches the graph on the current stream."""
        assert self._graph is not None
        self._graph.replay()

    def release(self) -> None:
        """Destroys the graph, without waiting for the device."""
        if self._graph is not None:
            self._graph.reset()
            self._graph = None

    def _generators(self) -> list[torch.Generator]:
        return [torch.cuda.default_generators[self._device.index], *self._further]


@contextmanager
def _without_collection() -> Iterator[None]:
    """Keeps the garbage collector away: a graph that it destroyed would free memory within the capture."""
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
