"""Random generators: as a checkpoint stores them, and as each run of several in one process has its own."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from types import TracebackType
from typing import Any

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


def stored_generators(rng: np.random.Generator) -> dict[str, Any]:
    """Returns the state of the run's generator and of PyTorch's, on the host and on the run's own GPU."""
    return {
        "numpy": json.dumps(rng.bit_generator.state),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def restore_generators(stored: Mapping[str, Any], rng: np.random.Generator) -> None:
    """Sets the generators to what `stored_generators` returned; a GPU's is passed over without a GPU."""
    rng.bit_generator.state = json.loads(stored["numpy"])
    torch.set_rng_state(stored["torch"])
    states = stored["cuda"]
    if states and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.set_rng_state(states[0])


def fresh_generators(*entropy: int) -> dict[str, Any]:
    """Returns what `stored_generators` would, for generators seeded with these numbers."""
    rng = np.random.default_rng(entropy)
    torch.manual_seed(int(rng.integers(2**63)))
    return stored_generators(rng)
