"""A replay put together again from the pieces that checkpoints keep."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.replays import Filled, few_or_many, filled, same_draws
from trainer.replay import Replay, transfer


def restored(run: Filled, state, pieces) -> Replay:
    other = run.make()
    other.load_state_dict(state)
    for piece in pieces:
        other.put(piece)
    return other


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    run=filled(25),
    steps=st.lists(st.tuples(few_or_many, st.booleans()), min_size=1, max_size=6),
    later=st.integers(0, 40),
)
def test_a_replay_is_restored_to_the_draw(run, steps, later):
    pieces, mark = [], None
    for count, cut in steps:
        run.step(count)
        if cut:
            run.replay.cut()
            run.cut()
        pieces.append(run.replay.rows_since(mark))
        mark = run.replay.position()
    state = run.replay.state_dict()
    other = restored(run, state, pieces)
    assert other.position() == mark
    assert other.sizes.tolist() == run.replay.sizes.tolist()
    assert torch.equal(other.observations(), run.replay.observations())
    if run.ready:
        assert same_draws(run.replay, other)
    run.step(later, (other,))
    assert torch.equal(other.observations(), run.replay.observations())
    if run.ready:
        assert same_draws(run.replay, other)
        run.check(other.sample())
    # what the running episodes had overwritten is not missed when they are dropped
    again = restored(run, state, pieces)
    again.cut()
    assert again.sizes.min() >= 0
    if later == 0:
        run.replay.cut()
        assert torch.equal(again.observations(), run.replay.observations())


@pytest.mark.parametrize("count", [0, 1, 6, 7])
def test_rows_come_to_the_host_in_blocks(monkeypatch, count):
    monkeypatch.setattr(transfer, "_ROWS", 3)
    rows, place = torch.arange(20.0).view(10, 2), np.random.default_rng(0).integers(10, size=count)
    assert np.array_equal(transfer.to_host(rows, place), rows.numpy()[place])


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(run=filled(25), steps=st.lists(st.integers(1, 70), min_size=2, max_size=6))
def test_pieces_before_the_oldest_row_are_not_needed(run, steps):
    pieces, mark = [], None
    for count in steps:
        run.step(count)
        pieces.append(run.replay.rows_since(mark))
        mark = run.replay.position()
    oldest = np.array(run.replay.oldest())
    needed = [piece for piece in pieces if (np.array(piece.end) > oldest).any()]
    other = restored(run, run.replay.state_dict(), needed)
    assert torch.equal(other.observations(), run.replay.observations())


def test_an_older_state_is_restored_from_pieces_up_to_it():
    run = Filled(2, 3, 30, 5, stagger=True, extra=8)
    run.step(17)
    pieces = [run.replay.rows_since(None)]
    state, held = run.replay.state_dict(), run.replay.observations()
    mark = run.replay.position()
    run.step(90)
    other = restored(run, state, pieces)
    assert torch.equal(other.observations(), held)
    other.put(run.replay.rows_since(mark))  # of what came later, nothing
    assert torch.equal(other.observations(), held)


@pytest.mark.parametrize("further", [1, 5, 10, 63])
def test_a_replay_goes_back_to_an_earlier_state(further):
    run, witness = (Filled(2, 3, 30, 5, stagger=True, extra=8) for _ in range(2))
    run.step(42)
    witness.step(42)
    witness.replay.load_state_dict(run.replay.state_dict())  # to draw the same
    state, piece = run.replay.state_dict(), run.replay.rows_since(None)
    run.step(further)
    run.replay.load_state_dict(state)
    run.replay.put(piece)
    for _ in range(12):
        assert torch.equal(run.replay.observations(), witness.replay.observations())
        witness.step(1, (run.replay,))
    assert same_draws(run.replay, witness.replay)


@pytest.mark.parametrize("drawn", [0, 1, 5, 15, 16, 17, 40])
def test_the_draws_go_on_where_they_were(drawn):
    run = Filled(3, 4, 30, 5, stagger=True, extra=1)
    run.step(20)
    for _ in range(drawn):
        run.replay.sample()
    other = restored(run, run.replay.state_dict(), [run.replay.rows_since(None)])
    assert same_draws(run.replay, other, batches=20)
    run.step(1, (other,))
    assert same_draws(run.replay, other, batches=20)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(run=filled(), steps=st.integers(1, 150), num_envs=st.integers(1, 9), later=st.integers(1, 30))
def test_another_number_of_environments_takes_over_whole_episodes(run, steps, num_envs, later):
    run.step(steps)
    other = run.make(num_envs)
    assert other.fits(run.replay.state_dict()) == (num_envs == run.num_envs)
    other.adopt(run.replay.state_dict(), [run.replay.rows_since(None)])
    whole = {
        serial
        for episodes in run.lanes.values()
        for episode in episodes
        if len(episode) == run.episode_steps
        for serial, _ in episode
    }
    held = other.observations()
    assert set(held[:, 1].int().tolist()) <= whole
    assert len(held.unique(dim=0)) == len(held)
    if other.sizes.min() > 0:
        for _ in range(3):
            batch = other.sample()
            run.check_whole(batch)
            assert (batch.next_observation[:, 1] > batch.observation[:, 1]).all()
    # all is new to whoever keeps it
    third = run.make(num_envs)
    third.load_state_dict(other.state_dict())
    third.put(other.rows_since(None))
    assert torch.equal(third.observations(), held)
    follower = Filled(
        run.num_tasks,
        num_envs,
        run.share,
        run.episode_steps,
        stagger=False,
        extra=run.batch_size - run.num_tasks,
    )
    follower.step(later, (other,))
    assert set(follower.replay.observations()[:, 1].int().tolist()) <= set(
        other.observations()[:, 1].int().tolist()
    )


def test_the_oldest_of_the_episodes_taken_over_are_overwritten_first():
    run = Filled(2, 2, 40, 5, stagger=False, extra=8)
    run.step(40)
    other = run.make(4)
    other.adopt(run.replay.state_dict(), [run.replay.rows_since(None)])
    for lane in torch.split(other.observations()[:, 1], other._lanes.held.tolist()):
        assert len(lane) == 20
        assert (lane.diff() > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize(("num_envs", "other_envs"), [(10, 20), (20, 10), (16, 10), (3, 12), (12, 3)])
def test_little_is_lost_when_the_number_of_environments_changes(num_envs, other_envs):
    run = Filled(10, num_envs, 400, 20, stagger=True, extra=0)
    run.step(400 * 10 // num_envs + 300)
    other = run.make(other_envs)
    other.adopt(run.replay.state_dict(), [run.replay.rows_since(None)])
    assert other.sizes.min() >= 0.8 * 400


@pytest.mark.parametrize("num_envs", [10, 32])
def test_a_piece_costs_little_more_than_its_transitions(num_envs):
    replay = Replay(10, num_envs, 200_000, 512, 500, 39, 4)
    replay._lanes.count += 30_123
    mark = replay.position()
    replay._lanes.count += 50_000 // num_envs
    added = 50_000 // num_envs * replay._lanes.base.size
    assert replay.rows_since(mark).nbytes <= 1.02 * added * 4 * (39 + 4 + 1)
