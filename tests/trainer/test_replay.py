"""What is drawn, against a plain list of everything that was ever added."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer.cuda_model import CudaModel
from tests.trainer.replays import Filled, draw_as_on_a_device, few_or_many, filled, same_draws
from tests.trainer.sacs import same
from tests.trainer.test_sac_group import SEEDS, seeded
from trainer.recipe.lanes import LaneLayout
from trainer.replay import Replay, ReplayGroup, TransitionReplay
from trainer.replay.draw import DeviceDraw, HostDraw
from trainer.replay.lanes import Lanes


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(run=filled(), steps=st.lists(few_or_many, min_size=1, max_size=4), cuts=st.booleans())
def test_batches_are_stratified_and_transitions_whole_and_the_newest(run, steps, cuts):
    for count in steps:
        run.step(count)
        expected = [run.expected(task) for task in range(run.num_tasks)]
        assert run.replay.sizes.tolist() == [len(held) for held in expected]
        if run.ready:
            for _ in range(3):
                run.check(run.replay.sample())
        held = run.replay.observations()
        assert len(held) == sum(map(len, expected))
        for task, wanted in enumerate(expected):
            assert set(held[held[:, 0] == task, 1].int().tolist()) == wanted.keys()
        if cuts:
            run.replay.cut()
            run.cut()


@pytest.mark.parametrize("steps", range(12))
def test_episodes_may_be_cut_at_any_step_also_the_first_ones(steps):
    run = Filled(2, 5, 30, 9, stagger=True, extra=9)
    run.step(steps)
    for _ in range(20):
        run.replay.cut()
        run.cut()
        assert run.replay.sizes.tolist() == [len(run.expected(task)) for task in range(2)]
        run.step(2)
        run.check(run.replay.sample())


@pytest.mark.slow
@pytest.mark.parametrize("kind", [HostDraw, DeviceDraw])
@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("steps", [40, 400])
def test_every_transition_is_drawn_equally_often(kind, num_envs, steps):
    torch.manual_seed(0)
    run = Filled(3, num_envs, 50, 7, stagger=True, extra=3000 - 3)
    run.step(steps)
    replay = run.replay
    if kind is DeviceDraw:
        draw_as_on_a_device(replay)
    if not run.ready:
        assert num_envs < 3
        return
    drawn = torch.cat([replay.sample().observation[:, 1].int() for _ in range(40)])
    serials, counts = drawn.unique(return_counts=True)
    wanted = {serial for task in range(3) for serial in run.expected(task)}
    assert set(serials.tolist()) == wanted
    for task in range(3):
        own = [int(n) for serial, n in zip(serials, counts, strict=True) if int(serial) in run.expected(task)]
        mean = 40_000 / len(own)
        # chi-squared over the task's transitions: 6 standard deviations of room
        excess = sum((count - mean) ** 2 / mean for count in own) - (len(own) - 1)
        assert abs(excess) < 6 * (2 * len(own)) ** 0.5


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(run=filled(), steps=st.integers(1, 150))
def test_a_device_draws_from_the_same(run, steps):
    run.step(steps)
    draw_as_on_a_device(run.replay)
    if run.ready:
        for _ in range(3):
            run.check(run.replay.sample())
        run.step(20)
        run.check(run.replay.sample())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(run=filled(), batches=st.lists(st.integers(1, 40), min_size=1, max_size=3))
def test_many_batches_may_be_drawn_between_two_steps(run, batches):
    run.step(30)
    while not run.ready:
        run.step(30)
    for count in batches:
        shares = []
        for _ in range(count):
            batch = run.replay.sample()
            run.check(batch)
            shares.append(torch.bincount(batch.task, minlength=run.num_tasks))
        total = torch.stack(shares).sum(0)
        assert total.max() - total.min() <= 1
        run.step()


def test_rows_on_the_host_are_those_of_a_replay_without_a_gpu():
    torch.manual_seed(0)
    run = Filled(2, 2, 20, 5, stagger=False, extra=5)
    torch.manual_seed(0)
    host = Replay(2, 2, 41, 7, 5, 3, 2, "cpu", on_host=True)
    run.step(50, (host,))
    assert same_draws(run.replay, host)
    assert host.nbytes == run.replay.nbytes


def test_what_does_not_divide_rotates_over_the_tasks():
    run = Filled(10, 10, 10, 5, stagger=False, extra=502)
    run.step()
    device = DeviceDraw(run.replay._layout, run.replay._lanes, torch.device("cpu"))
    for draw in (lambda: run.replay.sample().task, lambda: device()[1]):
        shares = torch.stack([torch.bincount(draw()) for _ in range(5)])
        assert shares.sum(1).tolist() == [512] * 5
        assert shares.sum(0).tolist() == [256] * 10  # five batches: every task has had its turn once
    run = Filled(10, 10, 10, 5, stagger=False, extra=3)
    run.step()
    shares = torch.stack([torch.bincount(run.replay.sample().task) for _ in range(50)])
    assert shares.sum(0).tolist() == [65] * 10


@pytest.mark.parametrize("kind", [HostDraw, DeviceDraw])
def test_every_row_of_a_large_ring_is_reached(kind):
    torch.manual_seed(0)
    layout = LaneLayout(2, 2, 2 * 9_000_000, 100_000, 500, 1, 1)
    lanes = Lanes(layout)
    lanes.count[:] = 20_000_000
    draw = kind(layout, lanes, *([torch.device("cpu")] if kind is DeviceDraw else []))
    odd = 0
    for _ in range(10):
        place, _ = draw()
        number = place - place // 501  # a row's transition
        odd += int((number % 2).sum())
        assert (place % 501 < 500).all()
    assert odd == pytest.approx(500_000, abs=6 * 500)


def test_the_generator_of_torch_decides_the_draws():
    def drawn(seed):
        torch.manual_seed(seed)
        run = Filled(2, 2, 40, 5, stagger=False, extra=30)
        run.step(60)
        return run.replay.sample().observation.clone()

    assert torch.equal(drawn(0), drawn(0))
    assert not torch.equal(drawn(0), drawn(1))


@given(
    num_tasks=st.integers(1, 50),
    num_envs=st.integers(1, 200),
    share=st.integers(1, 1000),
    episode_steps=st.integers(1, 50),
)
def test_lanes_share_a_task_in_proportion_to_what_they_receive(num_tasks, num_envs, share, episode_steps):
    layout = LaneLayout(num_tasks, num_envs, num_tasks * share, 1, episode_steps, 39, 4)
    own, spare = divmod(num_envs, num_tasks)
    weights = [num_tasks] * own + [spare] * (spare > 0)
    capacities = layout.lane_capacities
    assert sum(capacities) == share
    for weight, capacity in zip(weights, capacities, strict=True):
        assert abs(capacity - share * weight / sum(weights)) <= 1


def test_an_environment_that_leaves_an_episode_must_be_announced():
    run = Filled(1, 1, 10, 5, stagger=False, extra=0)
    run.step(3)
    run.start()
    with pytest.raises(AssertionError, match="cut"):
        run.step()


def test_rows_that_go_to_a_gpu_in_one_copy_are_those_that_stay_on_the_host() -> None:
    """On a model of one, which would find a buffer that is written to before its copy has been made."""
    sizes = (3, 5, 600, 12, 10, 4, 2)
    rng = np.random.default_rng(0)
    steps = [
        (
            *(rng.standard_normal((5, width), np.float32) for width in (4, 2)),
            rng.standard_normal(5, np.float32),
            rng.standard_normal((5, 4), np.float32),
        )
        for _ in range(70)
    ]
    orders = [
        (np.array([0, 1, 2, turn % 3, (turn + 1) % 3]), 10 - step) for turn in range(7) for step in range(10)
    ]

    def filled_on(device: torch.device) -> Replay:
        replay = Replay(*sizes, device)
        for step, (task, left) in zip(steps, orders, strict=True):
            replay.add(*step, task, np.full(5, left))
        return replay

    with CudaModel() as model:
        there = filled_on(model.device)
        rows, draw = there.rows_since(None), there._draw
        assert isinstance(draw, DeviceDraw)
        lanes, offset = draw._lanes.cpu(), draw._offset.cpu()
        assert model.order.races == []
    here = filled_on(torch.device("cpu"))
    np.testing.assert_array_equal(rows.data, here.rows_since(None).data)
    assert there.position() == here.position()
    here.sample()  # before a draw the tables may be behind
    tables = here._draw._tables
    assert lanes[1].tolist() == tables.begin.tolist()
    assert lanes[2].tolist() == tables.shift.tolist()
    assert offset.tolist() == tables.offset.tolist()


def fill(replay: Replay, seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    for step in range(steps):
        numbers = [rng.standard_normal((6, width), np.float32) for width in (4, 2, 4)]
        remaining = np.full(6, 10 - step % 10)
        replay.add(*numbers[:2], numbers[0][:, 0], numbers[2], np.arange(6) % 3, remaining)


@pytest.mark.parametrize("kind", ["episodes on the host", "episodes on a device", "transitions"])
def test_a_batch_of_several_replays_is_what_each_would_give(kind):
    def make() -> list[Replay | TransitionReplay]:
        replays = []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            if kind == "transitions":
                rng = np.random.default_rng(seed)
                replay = TransitionReplay(50, 16, 4, 2)
                rows = [rng.standard_normal((30, width), np.float32) for width in (4, 2, 4)]
                replay.add(*rows[:2], rows[2][:, 0], rows[2], rng.random(30) < 0.5)
            else:
                replay = Replay(3, 6, 120, 16, 10, 4, 2)
                fill(replay, seed, 12)
                if kind == "episodes on a device":
                    draw_as_on_a_device(replay)
            replays.append(replay)
        return replays

    alone, grouped = make(), make()
    streams, others = ([seeded(seed) for seed in range(SEEDS)] for _ in range(2))
    group = ReplayGroup(grouped, others)
    for _ in range(3):
        found = group.sample()
        for seed, stream in enumerate(streams):
            with stream:
                expected = alone[seed].sample()
            assert all(same([tensor[seed] for tensor in found.tensors], list(expected.tensors)))


def test_transitions_on_a_device_are_drawn_for_all_seeds_at_once():
    replays = [TransitionReplay(50, 16, 4, 2, "meta") for _ in range(SEEDS)]
    batch = ReplayGroup(replays, [seeded(seed) for seed in range(SEEDS)]).sample()
    assert [tuple(tensor.shape) for tensor in batch] == [
        *((SEEDS, 16, 4), (SEEDS, 16, 2), (SEEDS, 16), (SEEDS, 16, 4)),
        *((SEEDS, 16), (SEEDS, 16)),
    ]
