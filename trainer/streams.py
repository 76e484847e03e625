"""The random numbers of one run among several in a process, which draws as if it were alone."""

from __future__ import annotations

import random
from types import TracebackType

import numpy as np
import torch


class Stream:
    """PyTorch's default generators, of the host and of a GPU, as one run has them. Use as a context manager.

    Inside, they are in the place of the process's, which come back afterwards. Streams begin where those are,
    may lie within each other, and cost two microseconds.

    Args:
        device: where the run learns.

    Attributes:
        generator: the GPU's, for a graph to register and to draw from; None without a GPU. A graph captured
            inside has registered it already.
    """

    def __init__(self, device: torch.device) -> None:
        self._state = torch.default_generator.get_state()
        self.generator: torch.Generator | None = None
        if device.type == "cuda":
            torch.cuda.init()  # type: ignore[no-untyped-call]
            self._default = torch.cuda.default_generators[device.index]
            self.generator = self._default.clone_state()
            self._outer = self._default.graphsafe_get_state()

    def __enter__(self) -> None:
        self._exchange()
        if self.generator is not None:
            # the place alone is exchanged, which is what a captured graph remembers
            self._outer = self._default.graphsafe_get_state()
            self._default.graphsafe_set_state(self.generator)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.generator is not None:
            # a capture that failed has given the default generator another place
            self.generator.graphsafe_set_state(self._default.graphsafe_get_state())
            self._default.graphsafe_set_state(self._outer)
        self._exchange()

    def _exchange(self) -> None:
        held = torch.default_generator.get_state()
        torch.default_generator.set_state(self._state)
        self._state = held


class HostGenerators:
    """Python's and NumPy's own generators, in the same way; exchanging them takes 60 microseconds.

    Nothing in the trainer draws from them, but an environment of a user's own may, if it is stepped in this
    process.
    """

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state(legacy=False)

    def __enter__(self) -> None:
        self._exchange()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exchange()

    def _exchange(self) -> None:
        held = random.getstate(), np.random.get_state(legacy=False)
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        self._python, self._numpy = held
