"""The device: which tensors lie on it, its streams, events, graphs, generators and workspaces."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.cuda_model.order import HOST, Clock, Order
from tests.trainer.cuda_model.tape import NotCapturableError, Tape, place_of, tensors_of, written
from trainer.algorithms import capture
from trainer.algorithms.kernels import launch

_PRODUCTS = ("mm", "linear", "matmul")
_POOL = 32
"""Streams of a priority; PyTorch gives them out in turn, again and again."""
_CPU = torch.device("cpu")


class CudaModel:
    """A device, whose `device` the trainer is given. Use as a context manager.

    Attributes:
        device: `cuda:0`.
        order: see there; `order.races` is to stay empty.
        faults: what else went wrong that a real device would not tell of.
        operations: done by streams, replays included.
    """

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        self.order = Order()
        self.faults: list[str] = []
        self.operations = 0
        self.default_stream = _Stream(self, "default")
        self.current = self.default_stream
        self.tape: Tape | None = None
        self.default_generator = _Generator(_Draws(torch.Generator().get_state()))
        self.registered: set[int] = set()
        self.making = False
        self.workspaces: dict[str, int] = {}
        self._versions = count(1)
        self._turns: dict[int, Iterator[int]] = defaultdict(count)
        self._marks: set[int] = set()
        self._seen: dict[int, StorageWeakRef] = {}
        self._stack = ExitStack()

    def __enter__(self) -> CudaModel:
        autocast = torch.autocast
        graph_class = _graph_class(self)
        replaced: dict[str, Any] = {
            "Stream": self._new_stream,
            "Event": lambda *_, **__: _Event(self),
            "stream": self._within,
            "current_stream": lambda *_: self.current,
            "default_stream": lambda *_: self.default_stream,
            "set_stream": self._set_stream,
            "synchronize": lambda *_: self.synchronize(),
            "empty_cache": lambda: None,
            "init": lambda: None,
            "current_device": lambda: 0,
            "CUDAGraph": lambda: _Graph(self),
            "graph": graph_class,
            "default_generators": (self.default_generator,),
            "manual_seed_all": self._seed,
        }
        for name, value in replaced.items():
            self._stack.enter_context(patch.object(torch.cuda, name, value))
        self._stack.enter_context(
            patch.object(torch, "autocast", lambda _, *args, **how: autocast("cpu", *args, **how))
        )
        self._stack.enter_context(patch.object(torch.version, "cuda", "13.0"))
        self._stack.enter_context(patch.object(capture, "_free", defaultdict(list)))
        self._stack.enter_context(patch.object(launch, "DRIVER", "that of a model"))
        self._stack.enter_context(_Devices(self))
        self._stack.enter_context(_Operations(self))
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()

    def holds(self, tensor: Tensor) -> bool:
        """Returns whether a tensor lies on the device."""
        return place_of(tensor) in self._marks

    def mark(self, tensor: Tensor) -> Tensor:
        """Says that a tensor's memory is the device's."""
        self._marks.add(self.place(tensor))
        return tensor

    def place(self, tensor: Tensor) -> int:
        """Returns what identifies the memory of a tensor, also after it has been freed."""
        found = place_of(tensor)
        if found not in self._seen:
            self._seen[found] = StorageWeakRef(tensor.untyped_storage())
        return found

    def synchronize(self) -> None:
        """The host waits for all streams.

        Raises:
            NotCapturableError: the host is capturing.
        """
        for actor in [*self.order._clocks]:
            self.wait(self.order.clock(actor))

    def wait(self, clock: Clock) -> None:
        """The host waits until all that the clock knows of has happened."""
        if self.tape is not None:
            raise NotCapturableError("waiting for the device")
        self.order.learn(HOST, clock)

    def launch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Does an operation on the current stream, or captures it."""
        inputs = tensors_of((args, kwargs))
        known = set(map(self.place, inputs))
        name = func._schema.name
        crossing = "copy" in name and len({self.holds(tensor) for tensor in inputs}) > 1
        crossing = crossing or "lift_fresh" in name
        blocking = crossing and not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        mixed = any(tensor.dim() and not self.holds(tensor) for tensor in inputs)
        if mixed and not crossing and "_like" not in name:
            raise RuntimeError(f"Expected all tensors to be on the same device: {name}")
        draws = self.default_generator.draws if torch.Tag.nondeterministic_seeded in func.tags else None
        if self.tape is not None:
            if blocking:
                raise NotCapturableError(f"a copy that waits ({name})")
            if draws is not None and id(draws) not in self.registered:
                raise RuntimeError("Attempt to increase offset for a CUDA generator not in capture mode.")
            out = self.tape.record(func, args, kwargs, draws)
            if is_product(name):
                self.workspace(self.current.name)
        else:
            out = self.run(func, args, kwargs, draws)
            changed = written(func, args, kwargs)
            seen = () if "_like" in name else inputs  # which looks at a shape alone
            self.touch(name, map(self.place, seen), map(self.place, changed), self.current.name)
            if blocking or "_local_scalar_dense" in name:
                self.wait(self.order.clock(self.current.name))
        for result in tensors_of(out):
            if "lift_fresh" in name or place_of(result) not in known:
                self.mark(result)
        return out

    def touch(
        self, name: str, reads: Iterator[Hashable], writes: Iterator[Hashable], workspace_of: str
    ) -> None:
        """Records an operation of the current stream, with the workspace that its stream of launch has."""
        self.operations += 1
        self.order.learn(self.current.name, self.order.clock(HOST))
        changed = [*writes]
        if is_product(name):
            changed.append(("workspace", threading.get_ident(), self.workspace(workspace_of)))
        self.order.access(self.current.name, [*reads], changed, name)

    def workspace(self, stream: str) -> int:
        """Returns the number of a stream's workspace, which cuBLAS makes when it first needs one."""
        if stream not in self.workspaces:
            self.workspaces[stream] = next(self._versions)
        return self.workspaces[stream]

    def run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], draws: Any) -> Any:
        """Does an operation, drawing from a generator of the device if one is given."""
        if draws is None:
            return func(*args, **kwargs)
        held = torch.default_generator.get_state()
        torch.default_generator.set_state(draws.state)
        try:
            return func(*args, **kwargs)
        finally:
            draws.state = torch.default_generator.get_state()
            torch.default_generator.set_state(held)

    def _new_stream(self, _device: Any = None, priority: int = 0, **_: Any) -> _Stream:
        return _Stream(self, f"stream {next(self._turns[priority]) % _POOL} of priority {priority}")

    @contextmanager
    def _within(self, stream: _Stream | None) -> Iterator[None]:
        before = self.current
        self.current = stream or before
        try:
            yield
        finally:
            self.current = before

    def _set_stream(self, stream: _Stream) -> None:
        self.current = stream

    def _seed(self, seed: int) -> None:
        self.default_generator.draws.state = torch.Generator().manual_seed(seed).get_state()


def is_product(name: str) -> bool:
    """Returns whether cuBLAS computes an operation."""
    return any(product in name for product in _PRODUCTS)


class _Stream:
    def __init__(self, model: CudaModel, name: str) -> None:
        self._model = model
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def wait_stream(self, other: _Stream) -> None:
        self._model.order.learn(self.name, self._model.order.clock(other.name))

    def wait_event(self, event: _Event) -> None:
        self._model.order.learn(self.name, event.clock)

    def synchronize(self) -> None:
        self._model.wait(self._model.order.clock(self.name))


class _Event:
    def __init__(self, model: CudaModel) -> None:
        self._model = model
        self.clock: Clock = {}

    def record(self, stream: _Stream | None = None) -> None:
        model = self._model
        name = (stream or model.current).name
        model.order.learn(name, model.order.clock(HOST))
        self.clock = model.order.clock(name)

    def synchronize(self) -> None:
        self._model.wait(self.clock)


class _Draws:
    """The place of a generator's state, which graphs remember."""

    def __init__(self, state: Tensor) -> None:
        self.state = state


class _Generator:
    def __init__(self, draws: _Draws) -> None:
        self.draws = draws

    def get_state(self) -> Tensor:
        return self.draws.state.clone()

    def set_state(self, state: Tensor) -> _Generator:
        self.draws.state = state.clone()
        return self

    def clone_state(self) -> _Generator:
        return _Generator(_Draws(self.draws.state.clone()))

    def graphsafe_get_state(self) -> _Generator:
        return _Generator(self.draws)

    def graphsafe_set_state(self, other: _Generator) -> _Generator:
        self.draws = other.draws
        return self


class _Graph:
    def __init__(self, model: CudaModel) -> None:
        self._model = model
        self._generators: list[_Draws] = []
        self._tape: Tape | None = None
        self._stream = ""
        self._workspace = 0

    def register_generator_state(self, generator: _Generator) -> None:
        self._generators.append(generator.draws)

    def begin(self, stream: str) -> None:
        model = self._model
        self._stream = stream
        self._tape = model.tape = Tape(model.run, model.holds)
        model.registered = {id(draws) for draws in (*self._generators, model.default_generator.draws)}

    def end(self) -> None:
        model = self._model
        model.tape, model.registered = None, set()
        assert self._tape is not None
        self._tape.undo()
        self._workspace = model.workspaces.get(self._stream, 0)

    def replay(self) -> None:
        model = self._model
        assert self._tape is not None, "a graph without a capture"
        if model.tape is not None:
            raise NotCapturableError("a graph's replay")
        if model.workspaces.get(self._stream, 0) != self._workspace:
            model.faults.append("a graph is replayed whose workspace has been freed")
        for step in self._tape.steps:
            with _untouched():
                self._tape.play(step)
            model.touch(step.func._schema.name, iter(step.reads), iter(step.writes), self._stream)

    def reset(self) -> None:
        if self._tape is None:
            return
        self._tape = None
        if self._model.tape is not None:
            self._model.faults.append("a graph is destroyed during the capture of another one")
        self._model.workspaces.pop(self._stream, None)  # as CUDAGraph::reset does, whoever else holds it

    def __del__(self) -> None:
        self.reset()


def _graph_class(model: CudaModel) -> type:
    class Graph:
        """`torch.cuda.graph`."""

        default_capture_stream: _Stream | None = None

        def __init__(
            self, cuda_graph: _Graph, pool: Any = None, stream: _Stream | None = None, **_: Any
        ) -> None:
            if stream is None and Graph.default_capture_stream is None:
                Graph.default_capture_stream = model._new_stream()
            self._graph = cuda_graph
            self._stream = stream or Graph.default_capture_stream
            self._before = model.current

        def __enter__(self) -> None:
            model.synchronize()
            assert self._stream is not None
            self._before, model.current = model.current, self._stream
            self._graph.begin(self._stream.name)

        def __exit__(self, *error: Any) -> None:
            with _untouched():
                self._graph.end()
            model.current = self._before

    return Graph


@contextmanager
def _untouched() -> Iterator[None]:
    """Within, operations are done as if there were no model."""
    with torch._C.DisableTorchFunction(), torch.utils._python_dispatch._disable_current_modes():
        yield


class _Devices(TorchFunctionMode):
    """Lets tensors say where they lie, and puts them where they are asked to."""

    def __init__(self, model: CudaModel) -> None:
        super().__init__()
        self._model = model

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        model, name = self._model, getattr(func, "__name__", "")
        if name == "__get__":
            asked = getattr(func, "__self__", None)
            if asked is torch._C.TensorBase.device:
                return model.device if model.holds(args[0]) else func(*args, **kwargs)
            if asked is torch._C.TensorBase.is_cuda:
                return model.holds(args[0])
            return func(*args, **kwargs)
        if name in ("to", "cpu", "cuda"):
            return self._move(func, name, args, kwargs)
        if name == "numpy" and model.holds(args[0]):
            raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
        if name == "tolist" and model.holds(args[0]):
            model.wait(model.order.clock(model.current.name))
        if name == "__deepcopy__":  # which copies the memory by itself
            out = func(*args, **kwargs)
            return model.mark(out) if model.holds(args[0]) else out
        if name == "pin_memory":
            return args[0].clone()
        kwargs.pop("pin_memory", None)
        if name == "grad":  # whose formulas make tensors where the gradients are
            with self._making(any(map(model.holds, tensors_of(args)))):
                return func(*args, **kwargs)
        if kwargs.get("device") is None:
            return func(*args, **kwargs)
        there = torch.device(kwargs["device"]).type == "cuda"
        with self._making(there):
            out = func(*args, **kwargs | {"device": _CPU})
        return model.mark(out) if there else out

    @contextmanager
    def _making(self, there: bool) -> Iterator[None]:
        """Within, new tensors come to lie on the device."""
        before, self._model.making = self._model.making, there
        try:
            yield
        finally:
            self._model.making = before

    def _move(
        self, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        model, tensor = self._model, args[0]
        wanted = kwargs.pop("device", None)
        if name != "to":
            wanted = torch.device(name)
        rest = [arg for arg in args[1:] if name == "to" and isinstance(arg, torch.dtype)]
        for arg in args[1:]:
            if name == "to" and isinstance(arg, str | torch.device):
                wanted = torch.device(arg)
        waits = not (kwargs.get("non_blocking") or any(arg is True for arg in args[2:3]))
        if wanted is not None and (torch.device(wanted).type == "cuda") != model.holds(tensor):
            there = torch.empty_like(tensor, requires_grad=False)
            if torch.device(wanted).type == "cuda":
                model.mark(there)
            else:
                model._marks.discard(place_of(there))
            with torch.no_grad():
                there.copy_(tensor, non_blocking=not waits)
            tensor = there
        dtype = kwargs.get("dtype") or (rest[0] if rest else None)
        return tensor.to(dtype) if dtype else tensor


class _Operations(TorchDispatchMode):
    """Sees every operation, backward ones included."""

    def __init__(self, model: CudaModel) -> None:
        super().__init__()
        self._model = model

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, model = kwargs or {}, self._model
        inputs = tensors_of((args, kwargs))
        if model.making or any(model.holds(tensor) for tensor in inputs):
            return model.launch(func, args, kwargs)
        changed = [*map(model.place, written(func, args, kwargs))]
        out = func(*args, **kwargs)
        model.order.access(HOST, [*map(model.place, inputs)], changed, func._schema.name)
        return out
