"""The real replay through the real store: what comes back draws the same batches."""

import pytest
import torch

from tests.trainer.replays import Filled, same_draws
from tests.trainer.test_checkpoint import parts_of, steps, store
from trainer import checkpoint


def same(ours, theirs):
    assert ours.sizes.tolist() == theirs.sizes.tolist()
    assert torch.equal(ours.observations(), theirs.observations())
    assert same_draws(ours, theirs)


def restored(run_dir, step, filled, num_envs=None):
    copy = filled.make(num_envs)
    path = checkpoint.directory(run_dir) / f"step-{step:012d}"
    resuming = store(run_dir)
    resuming.restore_replay(path, copy)
    return resuming, copy


# as many environments as tasks, copies, some that move, and only some that move
@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [3, 6, 7, 2])
@pytest.mark.parametrize("stagger", [False, True])
def test_every_kept_checkpoint_restores_the_replay_it_saved(tmp_path, num_envs, stagger):
    filled = Filled(3, num_envs, 60, 10, stagger=stagger, extra=2)
    saving = store(tmp_path, keep=4)
    states = {}
    filled.step(40)
    for step, more in enumerate((0, 3, 25, 0, 77, 1, 130, 9), start=1):
        filled.step(more)
        saving.save(step, parts_of(step), filled.replay)
        expected = filled.replay.observations().clone(), filled.replay.state_dict()
        states[step] = expected
    assert steps(tmp_path) == [5, 6, 7, 8]
    for step in (5, 6, 7):
        _, copy = restored(tmp_path, step, filled)
        observations, state = states[step]
        assert torch.equal(copy.observations(), observations)
        assert copy.state_dict() == state
    resuming, copy = restored(tmp_path, 8, filled)
    same(copy, filled.replay)
    # the resumed run and the one that was never interrupted go on alike
    filled.step(33, (copy,))
    same(copy, filled.replay)
    resuming.save(9, parts_of(9), copy)
    _, again = restored(tmp_path, 9, filled)
    # sampling has moved the generator of `copy` no further than its checkpoint tells
    same(again, copy)


def test_after_a_cut_everything_is_new(tmp_path):
    filled = Filled(3, 7, 60, 10, stagger=True, extra=2)
    filled.step(95)
    saving = store(tmp_path)
    saving.save(1, parts_of(1), filled.replay)
    resuming, copy = restored(tmp_path, 1, filled)
    copy.cut()
    first = resuming.save(2, parts_of(2), copy)
    _, again = restored(tmp_path, 2, filled)
    same(again, copy)
    assert first.nbytes > copy.sizes.sum() * 6 * 4
