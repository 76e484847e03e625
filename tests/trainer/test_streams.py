"""Streams of random numbers: each as if its run were alone in the process."""

import random
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trainer.algorithms.capture import CapturedUpdate
from trainer.loops.generators import HostGenerators, Stream, restore_generators, stored_generators
from trainer.machine.device import seed_everything

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def unchanged():
    """Leaves the process's generators as they were."""
    with Stream(CPU), HostGenerators():
        yield


def drawn() -> list:
    return [torch.rand(3).tolist(), torch.randn(5).tolist(), torch.randperm(6).tolist()]


def drawn_by_others() -> list:
    # the second of a pair of Gaussian numbers is kept in the generator
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()]


def alone(seed: int, draw, times: int) -> list:
    seed_everything(seed)
    return [draw() for _ in range(times)]


def test_each_draws_what_it_draws_alone():
    expected = [alone(seed, drawn, 4) for seed in (1, 2)]
    streams = Stream(CPU), Stream(CPU)
    for seed, stream in enumerate(streams, 1):
        with stream:
            seed_everything(seed)
    found = [[], []]
    for turn in (0, 1, 1, 0, 0, 1, 1, 0):
        with streams[turn]:
            found[turn].append(drawn())
    assert found == expected


def test_what_lies_outside_draws_on_as_if_nothing_had_been():
    expected = alone(3, drawn, 2)
    seed_everything(3)
    first = drawn()
    with Stream(CPU), Stream(CPU):
        torch.manual_seed(7)
        drawn()
    assert [first, drawn()] == expected


def test_an_error_inside_brings_the_others_back():
    expected = alone(3, drawn, 1)
    seed_everything(3)
    with suppress(ZeroDivisionError), Stream(CPU):
        drawn()
        raise ZeroDivisionError
    assert [drawn()] == expected


def test_a_stream_begins_where_the_process_is():
    seed_everything(4)
    stream = Stream(CPU)
    with stream:
        inside = drawn()
    assert inside == drawn()


def test_the_generators_that_environments_of_ones_own_may_draw_from():
    expected = [alone(seed, drawn_by_others, 3) for seed in (1, 2)]
    both = HostGenerators(), HostGenerators()
    for seed, generators in enumerate(both, 1):
        with generators:
            seed_everything(seed)
    found = [[], []]
    for turn in (0, 1, 1, 0, 1, 0):
        with both[turn]:
            found[turn].append(drawn_by_others())
    assert found == expected


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


@pytest.mark.cuda
@pytest.mark.parametrize("captured", [False, True])
def test_each_draws_on_the_gpu_what_it_draws_alone(captured):
    device = torch.device("cuda", torch.cuda.current_device())
    before = torch.cuda.get_rng_state(device)

    class Drawing:
        """A step that draws, as a learner's does; captured at its first call or not."""

        def __init__(self) -> None:
            self.total = torch.zeros(3, device=device)
            self.call = CapturedUpdate(self._draw, lambda: [self.total], device) if captured else self._draw

        def _draw(self):
            self.total += torch.rand(3, device=device)
            return {"total": self.total}

    def run(turns, streams):
        drawings = [Drawing() for _ in streams]
        for seed, stream in enumerate(streams):
            with stream:
                torch.manual_seed(seed)
        for turn in turns:
            with streams[turn]:
                drawings[turn].call()
        return [drawing.total.tolist() for drawing in drawings]

    together = run((0, 1, 1, 0, 0, 1, 0), [Stream(device), Stream(device)])
    assert together[0] == run((0, 0, 0, 0), [Stream(device)])[0]
    assert together[1] == run((1, 1, 1), [Stream(device), Stream(device)])[1]
    assert together[0] != together[1]
    assert torch.equal(torch.cuda.get_rng_state(device), before)
