"""What every off-policy learner keeps to, whatever its algorithm: each check makes learners and teaches them.

A `Make` makes a learner anew, always with the same weights; a `Draw` draws a batch of so many rows.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tests.trainer.cuda_model import CudaModel
from tests.trainer.sacs import same
from trainer.algorithms.capture import CapturedUpdate
from trainer.algorithms.off_policy import OffPolicy
from trainer.replay import Batch

Make = Callable[..., OffPolicy]
Draw = Callable[[int], Batch]


def teach(agent: OffPolicy, batches: Sequence[Batch], begin: int = 0) -> list[dict[str, Tensor]]:
    """Updates once with each batch, the turns one after the other; returns copies of what is said."""
    said = []
    for number, batch in enumerate(batches, begin):
        torch.manual_seed(number)
        losses = agent.update(batch, number % agent.turns)
        said.append({name: value.clone() for name, value in losses.items()})
    return said


def drawn(draw: Draw, count: int, rows: int = 12) -> list[Batch]:
    torch.manual_seed(1)
    return [draw(rows) for _ in range(count)]


def check_restored(make: Make, draw: Draw) -> None:
    """A learner that takes over another's state goes on as that one, to the bit."""
    agent, batches = make(), drawn(draw, 7)
    teach(agent, batches[:3])
    other = make()
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    said = [teach(learner, batches[3:], 3) for learner in (agent, other)]
    assert all(same(agent.state_dict(), other.state_dict()))
    assert all(same(*said))


def check_loading_moves_no_tensor(make: Make, draw: Draw) -> None:
    agent, other, batches = make(), make(), drawn(draw, 2)
    teach(agent, batches)
    teach(other, batches)
    places = [tensor.data_ptr() for tensor in other.tensors()]
    other.load_state_dict(copy.deepcopy(agent.state_dict()))
    teach(other, batches)
    assert [tensor.data_ptr() for tensor in other.tensors()] == places


def check_tensors(make: Make, draw: Draw) -> None:
    """An update writes nothing but the tensors of the learner."""
    agent, batches = make(), drawn(draw, 2 + 4)
    teach(agent, batches[:2])
    kept = [tensor.clone() for tensor in agent.tensors()]
    before = copy.deepcopy(agent.state_dict())
    teach(agent, batches[2:], 2)
    assert not all(same(agent.state_dict(), before))
    for tensor, value in zip(agent.tensors(), kept, strict=True):
        tensor.copy_(value)
    assert all(same(agent.state_dict(), before))


def check_skipped(make: Make, draw: Draw, field: str, poison: float) -> None:
    """Updates with a number that is not finite change nothing: the next is as if they had not been."""
    agent, spared = make(), make()
    batches = drawn(draw, 2 + 2)
    for learner in (agent, spared):
        teach(learner, batches[:2])
    before = learnt(agent)
    poisoned = batches[2]._replace(**{field: getattr(batches[2], field).clone()})
    getattr(poisoned, field)[7] = poison
    for times in (1, 2):
        teach(agent, [poisoned], begin=1 + times)
        assert agent.skipped.tolist() == [times, times]
    assert all(same(learnt(agent), before))
    for learner in (agent, spared):
        teach(learner, batches[2:], 2)
    assert all(same(learnt(agent), learnt(spared)))
    assert agent.skipped.tolist() == [2, 0]


def learnt(agent: OffPolicy) -> dict[str, Any]:
    """What is learnt, without what is only counted and said."""
    state = copy.deepcopy(agent.state_dict())
    return {name: value for name, value in state.items() if name not in ("skipped", "said")}


def check_parts(make: Make, draw: Draw, parts: int) -> None:
    """A batch in parts teaches what the whole batch does."""
    whole, split = make(), make(micro_batches=parts)
    batches = drawn(draw, 4, rows=24)
    said = [teach(learner, batches) for learner in (whole, split)]
    torch.testing.assert_close(said[0], said[1], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(whole.tensors(), split.tensors(), rtol=1e-4, atol=1e-5)


class Pair:
    """Two learners in threads, who meet within each update."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2, timeout=60)
        self._given: list[list[Tensor]] = [[], []]

    def average(self, rank: int) -> Callable[[Sequence[Tensor]], list[Tensor]]:
        """Returns what one of them averages by."""

        def average(tensors: Sequence[Tensor]) -> list[Tensor]:
            self._given[rank] = list(tensors)
            self._barrier.wait()
            mean = [(one + other) / 2 for one, other in zip(*self._given, strict=True)]
            self._barrier.wait()
            return mean

        return average


def check_halves(make: Make, draw: Draw, teach_half: Callable[[OffPolicy, Batch, int, slice], Any]) -> None:
    """Two learners with half of each batch learn what one learns, and both the same to the bit.

    Args:
        make: makes a learner.
        draw: draws a batch.
        teach_half: updates a learner with rows of a batch, given the number of the update.
    """
    whole, batches = make(), drawn(draw, 4, rows=24)
    pair = Pair()
    halves = [make(average=pair.average(rank)) for rank in range(2)]

    def learn(rank: int) -> None:
        for number, batch in enumerate(batches):
            teach_half(halves[rank], batch, number, slice(rank, None, 2))

    threads = [threading.Thread(target=learn, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for number, batch in enumerate(batches):
        teach_half(whole, batch, number, slice(None))
    for thread in threads:
        thread.join()
    assert all(same(halves[0].tensors(), halves[1].tensors()))
    torch.testing.assert_close(whole.tensors(), halves[0].tensors(), rtol=1e-4, atol=1e-5)


def check_captured(make: Make, draw: Draw) -> None:
    """Updates that are replayed, one graph a turn, equal those that are not captured, to the bit."""
    found = []
    for captured in (True, False):
        with CudaModel() as cuda:
            torch.manual_seed(0)
            agent = make(device=cuda.device)
            batches = drawn(draw, 7)
            batch = Batch(*(tensor.to(cuda.device) for tensor in batches[0].tensors))
            updates = [Turn(agent, batch, turn) for turn in range(agent.turns)]
            calls: list[Callable[[], dict[str, Tensor]]] = [*updates]
            if captured:
                graphs = [CapturedUpdate(each, agent.tensors, cuda.device) for each in updates]
                calls = [*graphs]
            for number, new in enumerate(batches):
                torch.manual_seed(number)
                for tensor, value in zip(batch.tensors, new.tensors, strict=True):
                    tensor.copy_(value)
                losses = calls[number % agent.turns]()
                found.append([tensor.detach().clone() for tensor in (*agent.tensors(), *losses.values())])
            if captured:
                assert {graph.note for graph in graphs} == {""}
            assert cuda.order.races == []
            assert cuda.faults == []
    assert all(same(found[:7], found[7:]))
    assert not all(same(found[0], found[6])), "something was learnt"


class Turn:
    """The update of one turn, with a batch that stays where it is."""

    def __init__(self, agent: OffPolicy, batch: Batch, turn: int) -> None:
        self._how = agent, batch, turn

    def __call__(self) -> dict[str, Tensor]:
        agent, batch, turn = self._how
        return agent.update(batch, turn)
