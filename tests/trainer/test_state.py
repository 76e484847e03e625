"""Random generators in a checkpoint, whichever GPUs are in sight when it is taken up."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trainer.loops.generators import restore_generators, stored_generators


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
        monkeypatch.setattr("trainer.loops.generators.torch.cuda", double)

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


def test_without_a_gpu_the_others_go_on() -> None:
    rng = np.random.default_rng(0)
    stored = stored_generators(rng) | {"cuda": [torch.tensor([7])]}
    drawn = rng.random(), torch.rand(1)
    restore_generators(stored, rng)
    assert (rng.random(), torch.rand(1)) == drawn
