"""Captures a step of fixed shapes once as a CUDA graph, and replays it for the cost of one launch.

Capturing takes a few real steps first (libraries choose and set themselves up in them), and these must leave
no trace: what they wrote is put back, and so is the random generator. A run that captures after a resumption
goes on exactly as one that never stopped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor

_WARM_UPS = 3


class Recorder(Protocol):
    """What a device must be able to do."""

    def generator_state(self) -> Tensor:
        """Returns the state of the default generator."""

    def set_generator_state(self, state: Tensor) -> None:
        """Sets the default generator."""

    def warm_up(self, work: Callable[[], object]) -> None:
        """Does the work on a stream of its own, and waits for it."""

    def record(self, work: Callable[[], object]) -> None:
        """Records the work without doing it."""

    def replay(self) -> None:
        """Does the work recorded, on the current stream."""


class CudaRecorder:
    """Records on a CUDA device.

    Args:
        device: the device.
        generators: from which the work draws, beside the device's default one.
    """

    def __init__(self, device: torch.device, generators: Sequence[torch.Generator] = ()) -> None:
        self._device = device
        self._further = generators
        self._graph: torch.cuda.CUDAGraph | None = None

    def generator_state(self) -> Tensor:
        """Returns the states of the device's default generator and of the others, one after the other."""
        return torch.stack([generator.get_state() for generator in self._generators()])

    def set_generator_state(self, state: Tensor) -> None:
        """Sets the generators to what `generator_state` returned."""
        for generator, own in zip(self._generators(), state, strict=True):
            generator.set_state(own.clone())  # which looks for a state where the memory begins

    def warm_up(self, work: Callable[[], object]) -> None:
        """Does the work on a stream of its own, and waits for it."""
        current = torch.cuda.current_stream(self._device)
        side = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side), warnings.catch_warnings():
            # optimisers that can be captured wonder why they are not, which they soon will be
            warnings.filterwarnings("ignore", "This instance was constructed with capturable=True")
            work()
        current.wait_stream(side)
        torch.cuda.synchronize(self._device)

    def record(self, work: Callable[[], object]) -> None:
        """Captures the work, all of whose memory then belongs to the graph."""
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            for generator in self._further:
                graph.register_generator_state(generator)
            # thread_local: what telemetry's thread may ask of the driver meanwhile spoils nothing
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
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

    def _generators(self) -> list[torch.Generator]:
        return [torch.cuda.default_generators[self._device.index], *self._further]


class CapturedUpdate:
    """A step that is captured on its first call, on a GPU; elsewhere it is just called.

    The step takes its inputs from tensors of fixed addresses and draws random numbers from the device's
    default generator alone. What it returns is overwritten by the next call.

    Args:
        step: what to do; returns tensors by name.
        tensors: returns all that the step writes to and a later step reads, a replay's counters included.
        device: where the step computes.
        recorder: captures; by default a `CudaRecorder` on a GPU, none elsewhere.

    Attributes:
        note: why the step is not captured, once that has failed; empty otherwise.
    """

    def __init__(
        self,
        step: Callable[[], dict[str, Tensor]],
        tensors: Callable[[], Sequence[Tensor]],
        device: torch.device,
        recorder: Recorder | None = None,
    ) -> None:
        self._step = step
        self._tensors = tensors
        self._recorder = recorder or (CudaRecorder(device) if device.type == "cuda" else None)
        self._outputs: dict[str, Tensor] | None = None
        self.note = ""

    def __call__(self) -> dict[str, Tensor]:
        """Does one step.

        Raises:
            torch.OutOfMemoryError: the device has too little memory; what capturing wrote has been put back.
        """
        if self._recorder is None:
            return self._step()
        if self._outputs is None:
            try:
                self._outputs = self._capture(self._recorder)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._recorder = None
                self.note = f"updates are not captured, which makes them slower: {why_not(error)}"
                return self._step()
        self._recorder.replay()
        return self._outputs

    def _capture(self, recorder: Recorder) -> dict[str, Tensor]:
        outputs: dict[str, Tensor] = {}

        def work() -> None:
            outputs.update(self._step())

        def warm_up() -> None:
            for _ in range(_WARM_UPS):
                self._step()

        without_trace(recorder, self._tensors(), warm_up)
        recorder.record(work)
        return outputs


def without_trace(recorder: Recorder, tensors: Sequence[Tensor], work: Callable[[], None]) -> None:
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


def why_not(error: Exception) -> str:
    """Returns the first line of what an error says: CUDA's go on with general advice."""
    return str(error).partition("\n")[0]
