"""Captures a step of fixed shapes once as a CUDA graph, and replays it for the cost of one launch.

Capturing takes a few real steps first (libraries choose and set themselves up in them), and these must leave
no trace: what they wrote is put back, and so is the random generator. A run that captures after a resumption
goes on exactly as one that never stopped.

Each graph has a stream that no other live graph has. cuBLAS keeps a workspace for each stream, whose address
a graph remembers. Two graphs of one stream would write to the same workspace when they are replayed beside
each other, and the first to be destroyed would free the other's (pytorch/pytorch#193402). So a recorder keeps
its stream for as long as its graph lives.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from trainer.machine.device import raise_memory_fault

_WARM_UPS = 3
Result = TypeVar("Result")


class CapturedUpdate:
    """A step that is captured on its first call, on a GPU; elsewhere it is just called.

    The step takes its inputs from tensors of fixed addresses and draws random numbers from the device's
    default generator alone. What it returns is overwritten by the next call.

    Args:
        step: what to do; returns tensors by name. Whoever holds this object gives a `weak` method of its own.
        tensors: returns all that the step writes to and a later step reads, a replay's counters included.
        device: where the step computes.
        recorder: captures; by default a `CudaRecorder` on a GPU, none elsewhere.
        any_rank: told whether the capture has failed here, returns whether it has on any rank: those who
            meet within the step capture it all or not at all. Alone by default.

    Attributes:
        note: why the step is not captured, once that has failed; empty otherwise.
    """

    def __init__(
        self,
        step: Callable[[], dict[str, Tensor]],
        tensors: Callable[[], Sequence[Tensor]],
        device: torch.device,
        recorder: CudaRecorder | None = None,
        any_rank: Callable[[bool], bool] = bool,
    ) -> None:
        self._step = step
        self._tensors = tensors
        self._recorder = recorder or (CudaRecorder(device) if device.type == "cuda" else None)
        self._any_rank = any_rank
        self._outputs: dict[str, Tensor] | None = None
        self.note = ""

    def __call__(self) -> dict[str, Tensor]:
        """Does one step.

        Raises:
            torch.OutOfMemoryError: the device has too little memory; what capturing wrote has been put back.
        """
        try:
            if self._outputs is None and self._recorder is not None:
                self._capture(self._recorder)
            if self._outputs is None or self._recorder is None:
                return self._step()
            self._recorder.replay()
            return self._outputs
        except RuntimeError as error:
            raise_memory_fault(error)
            raise

    def release(self) -> None:
        """Drops what was captured, without waiting for the device; the next call captures anew."""
        self._outputs = None
        if self._recorder is not None:
            self._recorder.release()

    def _capture(self, recorder: CudaRecorder) -> None:
        outputs: dict[str, Tensor] = {}

        def work() -> None:
            outputs.update(self._step())

        def warm_up() -> None:
            for _ in range(_WARM_UPS):
                self._step()

        # what fails here is the step itself, which would fail uncaptured too
        without_trace(recorder, self._tensors(), warm_up)
        failure = ""
        try:
            recorder.record(work)
        except RuntimeError as error:
            raise_memory_fault(error)
            failure = why_not(error)
        if self._any_rank(bool(failure)):
            recorder.release()
            self._recorder = None
            self.note = "updates are not captured, which makes them slower: "
            self.note += failure or "another rank cannot capture them"
        else:
            self._outputs = outputs


def without_trace(recorder: CudaRecorder, tensors: Sequence[Tensor], work: Callable[[], None]) -> None:
    """Warms up with the work, then puts back tensors and generator, whether it succeeded or not."""
    kept = [tensor.clone() for tensor in tensors]
    generator = recorder.generator_state()
    try:
        recorder.warm_up(work)
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, kept, strict=True):
                tensor.copy_(value)
        recorder.set_generator_state(generator)


def weak(method: Callable[[], Result]) -> Callable[[], Result]:
    """Returns a call of a bound method that does not keep the method's object alive.

    An object that holds what it has captured of its own methods would else be a cycle, and its graph would
    stay on the device until the next garbage collection.
    """
    reference = weakref.WeakMethod(method)

    def call() -> Result:
        bound = reference()
        assert bound is not None, "the object is gone"
        return bound()

    return call


def why_not(error: Exception) -> str:
    """Returns the first line of what an error says: CUDA's go on with general advice."""
    return str(error).partition("\n")[0]


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
