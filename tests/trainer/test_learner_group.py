"""Several seeds' learners: they meet, part, fall back together, and learn what each learns alone."""

import weakref

import pytest
import torch

from tests.trainer.learners import OneByOne
from tests.trainer.learners import make as make_learner
from tests.trainer.test_capture import distance
from tests.trainer.test_sac_group import CPU, SEEDS
from trainer.algorithms.sac_learner import SACGroup
from trainer.errors import TrainerError
from trainer.loops.generators import Stream
from trainer.loops.learner import Learner
from trainer.loops.learner_group import LearnerGroup
from trainer.seeds.group import join_learners


@pytest.fixture
def seeds(tmp_path):
    """Makes learners in streams of their own."""

    def make():
        streams = [Stream(CPU) for _ in range(SEEDS)]
        learners = []
        for seed, stream in enumerate(streams):
            with stream:
                learners.append(make_learner(tmp_path, seed))
        return learners, streams

    return make


def assert_alike(learners, others):
    for learner, other in zip(learners, others, strict=True):
        torch.testing.assert_close(learner.agent.tensors(), other.agent.tensors(), rtol=1e-4, atol=1e-5)
        assert learner.losses.keys() == other.losses.keys()
        torch.testing.assert_close(learner.losses, other.losses, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close([*learner.batch.tensors], [*other.batch.tensors])


@pytest.mark.slow
def test_learners_meet_part_and_meet_again(seeds):
    learners, streams = seeds()
    others, further = seeds()
    group, one_by_one = LearnerGroup(learners, streams), OneByOne(others, further)
    named = [(0, 1, 2)] * 3 + [(0, 1), (1,), (0, 1, 2)] + [(1, 2)] * 10 + [(0,)]
    together = []
    for who in named:
        group.update(who)
        one_by_one.update(who)
        together.append(group._together)
    assert_alike(learners, others)
    assert together == [(0, 1, 2)] * 14 + [(1, 2)] * 3
    group.leave(1)
    one_by_one.leave(1)
    for each in (group, one_by_one):
        each.update((0, 2))
    assert group._together == (0, 2)
    assert_alike(learners, others)


@pytest.mark.slow
def test_learners_are_put_into_a_new_group_without_leaving_the_old_one(seeds):
    learners, streams = seeds()
    others, further = seeds()
    LearnerGroup(learners, streams).update((0, 1, 2))
    OneByOne(others, further).update((0, 1, 2))
    LearnerGroup(learners[1:], streams[1:]).update((0, 1))
    OneByOne(others[1:], further[1:]).update((0, 1))
    assert_alike(learners, others)


@pytest.mark.cuda
def test_on_a_gpu_one_graph_learns_what_each_learns_alone(tmp_path):
    device = torch.device("cuda", torch.cuda.current_device())

    def make() -> tuple[list[Learner], list[Stream]]:
        streams = [Stream(device) for _ in range(SEEDS)]
        learners = []
        for seed, stream in enumerate(streams):
            with stream:
                learners.append(make_learner(tmp_path, seed, device))
        return learners, streams

    (learners, streams), (others, further) = make(), make()
    group, one_by_one = join_learners(learners, streams), OneByOne(others, further)
    assert isinstance(group, LearnerGroup)
    for who in [(0, 1, 2)] * 20 + [(0, 2)] * 12 + [(1,)]:
        group.update(who)
        one_by_one.update(who)
    assert [learner.note for learner in learners] == [""] * SEEDS
    assert {learner.remark for learner in learners} == {""}, "on a processor there is one way"
    group.leave(0)
    group.update((1, 2))
    one_by_one.update((1, 2))
    assert max(distance(one.agent, two.agent) for one, two in zip(learners, others, strict=True)) < 1e-3


def test_the_memory_fallback_of_one_is_taken_by_all(seeds, monkeypatch):
    learners, streams = seeds()
    learners[1].agent.micro_batches = 4
    left, update = [2], SACGroup.update

    def fails(self, batch):
        if left[0]:
            left[0] -= 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")
        return update(self, batch)

    freed = []

    def watch(learner):
        replay = weakref.ref(learner.replay)
        learner._say = lambda text: freed.append(replay() is None) if "the replay" in text else None

    for learner in learners:
        watch(learner)
    monkeypatch.setattr(SACGroup, "update", fails)
    LearnerGroup(learners, streams).update((0, 1, 2))
    fallen = {"replay_on_host": True, "micro_batches": 8}
    assert [learner.memory_fallback for learner in learners] == [fallen] * SEEDS
    assert not any(learner.agent.skipped.any() for learner in learners)
    assert all(learner.losses["loss/critic"].isfinite() for learner in learners)

    assert freed == [True] * SEEDS, "room for the next one to fall back"
    left[0] = 100
    with pytest.raises(TrainerError, match="too small for this recipe"):
        LearnerGroup(learners, streams).update((0, 2))


def test_what_does_not_fit_beside_an_update_is_said_in_one_line_too(seeds, monkeypatch):
    def fails(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB")

    learners, streams = seeds()
    group = LearnerGroup(learners, streams)
    group.update((0, 1, 2))
    monkeypatch.setattr(SACGroup, "leave", fails)
    for _ in range(8):
        group.update((0, 1))
    with pytest.raises(TrainerError, match="too small for this recipe"):
        group.update((0, 1))
