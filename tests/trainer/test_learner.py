"""Memory fallbacks of a device that is full; only the fault itself is made up, for no CPU shows it."""

from types import SimpleNamespace

import pytest
import torch

from tests.trainer.learners import make as filled_learner
from trainer.algorithms.sac_learner import SAC
from trainer.errors import DivergedError, TrainerError
from trainer.loops import memory
from trainer.loops.attempt import TrainingAttempt
from trainer.loops.learner import Learner
from trainer.replay import Replay


@pytest.fixture
def said():
    return []


@pytest.fixture
def make(tmp_path, said):
    """Makes learners that are alike, with a full replay."""

    def make(fallback=None) -> Learner:
        return filled_learner(tmp_path, 0, say=said.append, fallback=fallback)

    return make


@pytest.fixture
def full(monkeypatch):
    """Makes the coming updates fail for want of memory, before they have changed anything."""

    def full(times: int) -> None:
        left = [times]
        update = SAC.update

        def fails(self, batch, turn=0):
            if left[0]:
                left[0] -= 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")
            return update(self, batch)

        monkeypatch.setattr(SAC, "update", fails)

    return full


def test_the_replay_goes_first_and_what_is_learnt_stays_the_same(make, full, said):
    plain, squeezed = make(), make()
    full(0)
    torch.manual_seed(5)
    plain.update()
    full(1)
    torch.manual_seed(5)
    squeezed.update()
    assert squeezed.memory_fallback == {"replay_on_host": True, "micro_batches": 1}
    assert len(said) == 1
    assert "the replay (0.0 GiB) lies in the host's memory" in said[0]
    assert squeezed.replay.sizes.tolist() == plain.replay.sizes.tolist()
    assert torch.equal(squeezed.replay.observations(), plain.replay.observations())


def test_then_the_batch_is_taken_in_parts(make, full, said):
    learner, alike = make(), make({"replay_on_host": True, "micro_batches": 4})
    full(3)
    learner.update()
    assert learner.memory_fallback == alike.memory_fallback == {"replay_on_host": True, "micro_batches": 4}
    assert [sentence.rsplit("takes", 1)[-1] for sentence in said[1:]] == [
        " its batch in 2 parts",
        " its batch in 4 parts",
    ]
    learner.update()  # and stays there
    assert len(said) == 3


def test_after_the_last_memory_fallback_the_run_ends_with_the_reason(make, full):
    learner = make()
    full(100)
    with pytest.raises(TrainerError, match=r"too small for this recipe: CUDA out of memory\. Tried"):
        learner.update()
    assert learner.agent.micro_batches == 16


def test_a_replay_that_does_not_fit_at_the_start_is_made_on_the_host(make, monkeypatch, said):
    def fails(*sizes, on_host, **settings):
        if not on_host:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return Replay(*sizes, on_host=on_host, **settings)

    monkeypatch.setattr(memory, "Replay", fails)
    learner = make()
    assert learner.memory_fallback["replay_on_host"]
    assert len(said) == 1
    learner.update()


@pytest.mark.slow
def test_a_hundred_updates_in_a_row_that_are_not_finite_are_the_end(make):
    learner = make()
    run = SimpleNamespace(learner=learner, _vector=SimpleNamespace(spoilt=[]))
    for _ in range(3):
        learner.update()
    TrainingAttempt._check(run)
    learner.replay._rows[:, -1] = torch.nan
    for _ in range(99):
        learner.update()
    TrainingAttempt._check(run)
    learner.update()
    with pytest.raises(DivergedError, match="100 updates in a row"):
        TrainingAttempt._check(run)
    assert learner.agent.skipped.tolist() == [100, 100]
