"""Random generators in a checkpoint, whichever GPUs are in sight when it is taken up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from trainer.loops.state import restore_generators, stored_generators


class Gpus:
    """Stands for the generators of some GPUs, of which the run has one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int, own: int) -> None:
        self.states = [torch.tensor([number], dtype=torch.uint8) for number in range(count)]
        self.own = own
        double = SimpleNamespace(
            is_initialized=lambda: bool(self.states),
            current_device=lambda: self.own,
            get_rng_state=lambda: self.states[self.own],
            set_rng_state=self._set,
        )
        monkeypatch.setattr("trainer.loops.state.torch.cuda", double)

    def _set(self, state: torch.Tensor) -> None:
        self.states[self.own] = state


@pytest.mark.parametrize(("count", "own"), [(1, 0), (4, 2)])
def test_the_generator_of_the_own_gpu_goes_on_whichever_are_in_sight(
    monkeypatch: pytest.MonkeyPatch, count: int, own: int
) -> None:
    rng = np.random.default_rng(0)
    Gpus(monkeypatch, 2, 1)
    stored = stored_generators(rng)
    assert [state.tolist() for state in stored["cuda"]] == [[1]]
    later = Gpus(monkeypatch, count, own)
    restore_generators(stored, rng)
    assert later.states[own].tolist() == [1]


@pytest.mark.parametrize(("own", "expected"), [(1, 8), (3, 7)])
def test_of_a_checkpoint_with_all_gpus_the_own_one_is_taken(
    monkeypatch: pytest.MonkeyPatch, own: int, expected: int
) -> None:
    rng = np.random.default_rng(0)
    stored: dict[str, Any] = stored_generators(rng)
    stored["cuda"] = [torch.tensor([7]), torch.tensor([8])]
    gpus = Gpus(monkeypatch, 4, own)
    restore_generators(stored, rng)
    assert gpus.states[own].tolist() == [expected]


def test_without_a_gpu_the_others_go_on() -> None:
    rng = np.random.default_rng(0)
    stored = stored_generators(rng) | {"cuda": [torch.tensor([7])]}
    drawn = rng.random(), torch.rand(1)
    restore_generators(stored, rng)
    assert (rng.random(), torch.rand(1)) == drawn
