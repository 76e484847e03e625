"""The loop itself, on environments that can be predicted."""

import json
import shutil
from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch

from tests.trainer.runs import (
    StopAt,
    events,
    held,
    newest,
    replay_rows,
    rows,
    run,
    settings_for,
    settings_of_counters,
    store_of,
    train,
    train_on_counters,
)
from tests.trainer.sacs import same
from tests.trainer.toys import CounterFactory
from trainer import checkpoint
from trainer.errors import WorkerError
from trainer.loops.off_policy import OffPolicyRun
from trainer.loops.state import EpisodeStatistics
from trainer.settings import TrainSettings

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 20, 32])
def test_the_number_of_environments_changes_neither_updates_nor_data_per_task(tmp_path, num_envs):
    argv = ("--total-steps", "500", "--num-envs", str(num_envs))
    settings = settings_of_counters(tmp_path, *argv, env_steps_per_update="20")
    train_on_counters(settings)
    progress = newest(settings)["state"]["progress"]
    assert 500 <= progress["step"] < 500 + num_envs
    warm = -(-60 // num_envs) * num_envs  # the first whole vector step after the warm-up
    expected = (progress["step"] - warm) // 20
    # with fewer environments than tasks, learning waits until each task has been seen
    assert expected - 2 * num_envs <= progress["updates"] <= expected
    if num_envs >= 3:
        assert progress["updates"] == expected
    sizes = held(settings)[0].sizes
    assert sizes.sum() == progress["step"]
    assert sizes.max() - sizes.min() <= 2 * 20


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing_at_all(tmp_path):
    found = {}
    for workers in (0, 2):
        argv = ("--total-steps", "200", "--num-envs", "5", "--workers", str(workers))
        settings = settings_of_counters(tmp_path / str(workers), *argv)
        train_on_counters(settings)
        found[workers] = newest(settings)["model"]["learner"]["policy"], torch.cat(held(settings)[1])
    assert torch.equal(found[2][1], found[0][1])
    ours, theirs = found[2][0], found[0][0]
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_what_is_remembered_is_what_happened(tmp_path):
    settings = settings_of_counters(
        tmp_path, "--total-steps", "900", "--num-envs", "4", env_steps_per_update="20"
    )
    train_on_counters(settings)
    replay, transitions = held(settings)
    task = torch.arange(3).repeat_interleave(torch.from_numpy(replay.sizes))
    observation, action, reward, following = torch.split(torch.cat(transitions), [3, 2, 1, 3], dim=1)
    assert torch.equal(observation[:, 0], task.float())
    # also at the cut of an episode: the goal stays, the counter goes on, nothing of the next episode shows
    assert torch.equal(following, observation + torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(reward[:, 0], action.sum(1) + following[:, 2])
    assert following[:, 2].max() == 20


@pytest.mark.slow
def test_observations_are_standardised_by_the_warm_up_and_never_again(tmp_path):
    short = settings_of_counters(tmp_path / "a", "--total-steps", "72", "--num-envs", "4")
    long = settings_of_counters(tmp_path / "b", "--total-steps", "160", "--num-envs", "4")
    for settings in (short, long):
        train_on_counters(settings)
    early, late = (newest(settings)["model"]["learner"]["policy"] for settings in (short, long))
    for name in ("encoder.mean", "encoder.std"):
        assert torch.equal(early[name], late[name])
    warm = torch.cat(held(short)[1])
    assert early["encoder.mean"][0] == pytest.approx(warm[:, 0].mean().item(), abs=0.05)
    assert early["encoder.std"].min() >= 0.02


@pytest.mark.slow
@pytest.mark.parametrize("num_envs", [4, 2])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, num_envs):
    argv, rare = ("--total-steps", "280", "--num-envs", str(num_envs)), {"env_steps_per_update": "10"}
    whole = settings_of_counters(tmp_path / "whole", *argv, **rare)
    train_on_counters(whole)
    assert "have the sha256" in events(whole.run_dir)[-1]
    for steps in (0, 7, 59):
        broken = settings_of_counters(tmp_path / str(steps), *argv, **rare)
        assert train_on_counters(broken, stop=StopAt(steps)).code == 85
        assert newest(broken)["state"]["progress"]["step"] == num_envs * steps
        assert train_on_counters(replace(broken, attempt=1), resume=True, seed=99).code == 0
        for ours, theirs in zip(held(broken)[1], held(whole)[1], strict=True):
            assert torch.equal(ours, theirs)
        assert events(broken.run_dir)[-1] == events(whole.run_dir)[-1]


STRONG = {
    "critic_network": "residual",
    "value_bins": "21",
    "value_smoothing": "0.75",
    "critic_reduction": "mean",
    "weight_decay": "0.01",
    "normalize_rewards": "returns",
    "env_steps_per_update": "10",
}


@pytest.mark.slow
def test_what_goes_beyond_the_paper_is_resumed_exactly_too(tmp_path):
    argv = ("--total-steps", "600", "--num-envs", "4", "--log-every", "100")
    whole, broken = (settings_of_counters(tmp_path / name, *argv, **STRONG) for name in ("whole", "broken"))
    train_on_counters(whole)
    for attempt, steps in enumerate((33, 40, 1000)):  # in the middle of an episode, twice
        settings = replace(broken, attempt=attempt)
        code = train_on_counters(
            settings, stop=StopAt(steps), resume=attempt > 0, seed=99 if attempt else None
        ).code
        assert code == (0 if steps == 1000 else 85)
    assert events(broken.run_dir)[-1] == events(whole.run_dir)[-1]
    assert "have the sha256" in events(whole.run_dir)[-1]
    ours, theirs = (newest(settings)["state"]["returns"] for settings in (broken, whole))
    assert torch.equal(ours["greatest"], theirs["greatest"])
    # a counter's rewards go from 1 to 20 with noise, so each task's greatest return is near the later ones
    logged = rows(whole.run_dir, "train")[-1]
    for task, greatest in zip(whole.tasks, ours["greatest"].tolist(), strict=True):
        assert logged[f"reward_factor/{task}"] == pytest.approx(8.0 / greatest, rel=1e-5)
        assert 1000 < greatest < 1500


def calls_of(run: OffPolicyRun, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the phases of a run; as the next step starts, environments overwrite what the last one gave."""
    noted = []

    def note(owner, name, said):
        call = getattr(owner, name)

        def noting(*args, **how):
            noted.append(said)
            return call(*args, **how)

        monkeypatch.setattr(owner, name, noting)

    note(run._vector, "start", "start")
    note(run.learner, "remember", "store")
    note(run.learner, "update", "update")
    note(run._telemetry, "train", "log")
    note(run._telemetry, "checkpoint", "save")
    note(run._evaluations, "collect", "tell")
    monkeypatch.setattr(run._evaluations, "submit", lambda *_: noted.append("evaluate"))
    start, block = run._vector.start, run._vector._block

    def overwriting(*args):
        start(*args)
        for array in (block.reward, block.success, block.next_observation, block.terminated):
            array[:] = 1

    monkeypatch.setattr(run._vector, "start", overwriting)
    return noted


def test_a_step_is_stored_while_the_next_is_made_and_before_all_that_tells_of_it(tmp_path, monkeypatch):
    noted = []
    make = OffPolicyRun.__init__

    def watched(run, *args):
        make(run, *args)
        noted.append(calls_of(run, monkeypatch))

    monkeypatch.setattr(OffPolicyRun, "__init__", watched)
    argv = ("--num-envs", "4", "--log-every", "72", "--checkpoint-every", "80", "--eval-every", "84")
    settings = settings_of_counters(tmp_path, *argv, "--total-steps", "92", env_steps_per_update="4")
    train_on_counters(settings)
    stored = ["store", "tell"]
    told = [
        "start",
        *(["start", *stored] * 15),  # the warm-up
        *["start", "update"],
        *["start", *stored, "update"],
        *["start", *stored, "update", *stored, "log"],  # at 72 steps
        *["start", "update"],
        *["start", *stored, "update", *stored, "save"],
        *["start", "update", *stored, "evaluate"],
        *["start", "update"],
        *["start", *stored, "update", *stored, "save", "evaluate", "tell"],
    ]
    assert noted == [told]
    # a counter shows the goal of its episode and its steps: what was stored is not what came later
    observation, _, _, following = torch.split(torch.cat(held(settings)[1]), [3, 2, 1, 3], dim=1)
    assert torch.equal(following, observation + torch.tensor([0.0, 0.0, 1.0]))


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize(
    ("recipe", "changes", "workers"),
    [("local-demo", STRONG, 0), ("local-demo", {}, 2), ("sac", {}, 0), ("dqn", {"n_step": "3"}, 0)],
    ids=str,
)
def test_what_is_left_to_the_next_step_changes_no_bit(tmp_path, monkeypatch, recipe, changes, workers, lag):
    monkeypatch.setattr(TrainSettings, "lag_on", lambda *_: lag)
    argv = ("--num-envs", "4", "--log-every", "36", "--checkpoint-every", "44", "--keep", "9")
    argv = (*argv, "--workers", str(workers), "--total-steps", "280")
    found = []
    for place, pauses in (("left", OffPolicyRun._pauses), ("at-once", lambda _: True)):
        monkeypatch.setattr(OffPolicyRun, "_pauses", pauses)
        settings = settings_for(tmp_path / place, recipe, *argv, **changes)
        carry_out = train
        if recipe == "local-demo":
            settings, carry_out = replace(settings, tasks=CounterFactory().tasks), train_on_counters
        assert carry_out(settings, stop=StopAt(41)).code == 85
        assert carry_out(replace(settings, attempt=1), resume=True, seed=99).code == 0
        store, folder = store_of(settings), checkpoint.directory(settings.run_dir)
        found.append({path.name: store.load(path) for path in folder.glob("step-*")})
        found[-1]["rows"] = held(settings)[1] if recipe == "local-demo" else replay_rows(settings)
        found[-1]["told"] = [
            {name: value for name, value in row.items() if name.startswith(("loss/", "return/", "q/"))}
            for row in rows(settings.run_dir, "train")
        ]
    assert len(found[0]) == 7 + 3
    assert all(same(*found))


def test_a_lost_worker_costs_no_step_that_was_made(tmp_path, monkeypatch):
    made = OffPolicyRun.__init__

    def losing(run, *args):
        made(run, *args)
        # the first wait is for the start of the episodes
        waits = iter([*[run._vector.wait] * 24, Mock(side_effect=WorkerError("a worker died"))])
        monkeypatch.setattr(run._vector, "wait", lambda: next(waits)())

    monkeypatch.setattr(OffPolicyRun, "__init__", losing)
    settings = settings_of_counters(tmp_path, "--num-envs", "4", "--total-steps", "200")
    with pytest.raises(WorkerError, match="a worker died"):
        train_on_counters(settings)
    assert newest(settings)["state"]["progress"]["step"] == 4 * 23
    assert held(settings)[0].sizes.sum() == 4 * 23


def test_a_fault_in_storing_what_was_left_ends_the_run_without_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(EpisodeStatistics, "add", Mock(side_effect=[None] * 20 + [ArithmeticError("a bug")]))
    settings = settings_of_counters(tmp_path, "--num-envs", "4", "--total-steps", "200")
    with pytest.raises(ArithmeticError, match="a bug"):
        train_on_counters(settings)
    assert rows(tmp_path, "checkpoint") == []


@pytest.mark.slow
def test_with_other_environments_greatest_returns_stay(tmp_path):
    argv = ("--total-steps", "480", "--num-envs", "4")
    settings = settings_of_counters(tmp_path, *argv, normalize_rewards="returns")
    train_on_counters(settings, stop=StopAt(70))
    before = newest(settings)["state"]["returns"]["greatest"]
    assert (before > 0).all()
    train_on_counters(replace(settings, attempt=1, num_envs=6), resume=True)
    after = newest(settings)["state"]["returns"]
    assert (after["greatest"] >= before).all()
    assert after["rewards"].shape == (6, 20)


@pytest.mark.slow
def test_with_other_environments_the_whole_episodes_stay_and_new_ones_begin(tmp_path):
    settings = settings_of_counters(tmp_path, "--total-steps", "480", "--num-envs", "4")
    train_on_counters(settings, stop=StopAt(70))
    before = held(settings)[1]
    train_on_counters(replace(settings, attempt=1, num_envs=6), resume=True)
    assert any("has 4 environments, this run has 6: new episodes" in event for event in events(tmp_path))
    progress = newest(settings)["state"]["progress"]
    assert progress["step"] >= 480
    assert progress["updates"] == pytest.approx((480 - 60) / 5, abs=2)
    for old, new in zip(before, held(replace(settings, num_envs=6))[1], strict=True):
        kept = {tuple(row.tolist()) for row in old} & {tuple(row.tolist()) for row in new}
        assert len(kept) >= len(old) - 2 * 20


@pytest.mark.slow
def test_without_the_replay_the_policy_fills_it_again(tmp_path):
    settings = settings_of_counters(tmp_path, "--total-steps", "400", "--num-envs", "4")
    train_on_counters(settings)
    updates = newest(settings)["state"]["progress"]["updates"]
    shutil.rmtree(checkpoint.directory(tmp_path) / "replay")
    train_on_counters(replace(settings, attempt=1, total_steps=600), resume=True, replay=False)
    later = newest(settings)["state"]["progress"]["updates"]
    # 60 of the 200 steps fill the replay, the others earn an update for every 5
    assert later == updates + 140 // 5
    assert held(settings)[0].sizes.sum() == 200


class ShortCounterFactory(CounterFactory):
    horizon = 20


EVALUATED = (
    *("--total-steps", "480", "--num-envs", "6", "--log-every", "120", "--eval-every", "240"),
    *("--checkpoint-every", "180", "--eval-episodes", "2", "--final-episodes", "4"),
)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, warm_processes) -> TrainSettings:
    """A run with evaluations."""
    settings = settings_of_counters(tmp_path_factory.mktemp("evaluated"), *EVALUATED)
    run(settings, ShortCounterFactory())
    return settings


@pytest.mark.slow
def test_an_evaluation_that_an_interruption_left_unfinished_is_played_by_the_next_attempt(
    tmp_path, evaluated
):
    broken = settings_of_counters(tmp_path, *EVALUATED)
    run(broken, ShortCounterFactory(), stop=StopAt(40))
    left = [job["step"] for job in newest(broken)["state"]["evaluations"]["pending"]]
    assert [row["step"] for row in rows(tmp_path, "eval")] + left == [240]
    run(replace(broken, attempt=1), ShortCounterFactory(), resume=True, seed=99)
    whole, found = (
        [row | dict.fromkeys(("time", "attempt", "seconds")) for row in rows(each.run_dir, "eval")]
        for each in (evaluated, broken)
    )
    assert found == whole
    assert [row["step"] for row in found] == [240, 480]


def test_metrics_say_what_the_contract_says(evaluated):
    run_dir = evaluated.run_dir
    log = rows(run_dir, "train")
    assert [row["step"] for row in log] == [120, 240, 360, 480]
    assert log[-1].keys() >= {
        "steps_per_second",
        "updates",
        "updates_per_second",
        "return/mean",
        "return/red",
    }
    assert log[-1].keys() >= {"alpha/green", "loss/critic", "loss/actor", "loss/alpha", "q/mean", "entropy"}
    assert [(row["step"], row["episodes"]) for row in rows(run_dir, "eval")] == [(240, 2), (480, 4)]
    assert [row["step"] for row in rows(run_dir, "checkpoint")] == [180, 360, 480]
    for row in rows(run_dir, "checkpoint")[-1:]:
        assert (run_dir / row["path"] / "manifest.json").exists()
    heartbeat = json.loads((run_dir / "heartbeat.json").read_text())
    assert (heartbeat["step"], heartbeat["phase"]) == (480, "done")
    assert heartbeat["checkpoint"] == "checkpoints/step-000000000480"
