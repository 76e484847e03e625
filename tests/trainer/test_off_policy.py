"""The loop itself, on environments that can be predicted."""

import json
import shutil
from dataclasses import replace

import pytest
import torch

from tests.trainer.toys import CounterFactory
from trainer import checkpoint
from trainer.loops.off_policy import OffPolicyRun
from trainer.preemption import StopSignals
from trainer.replay import Replay, Rows
from trainer.settings import TrainSettings, read_settings
from trainer.telemetry import Telemetry

SMALL = {
    "tasks": "reach,push,door-close",
    "actor_hidden": "8",
    "critic_hidden": "8",
    "episode_steps": "20",
    "warmup_steps": "60",
    "env_steps_per_update": "5",
    "batch_size": "16",
    "replay_capacity": "3000",
}


def settings_for(run_dir, *argv: str) -> TrainSettings:
    changes = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}", "--unlock", key)]
    defaults = ("--wandb", "disabled", "--workers", "0", "--eval-every", "0", "--checkpoint-every", "0")
    settings = read_settings(
        ["--recipe", "local-demo", "--run-dir", str(run_dir), *changes, *defaults, *argv], {}
    )
    return replace(settings, tasks=CounterFactory().tasks)


def run(settings: TrainSettings, restored=None, stop=None, factory=None) -> OffPolicyRun:
    torch.manual_seed(settings.seed)
    telemetry = Telemetry.open(settings.run_dir, {}, settings.total_steps, settings.attempt, settings.wandb)
    device = torch.device("cpu")
    stop = StopSignals() if stop is None else stop
    with (
        telemetry,
        OffPolicyRun(settings, factory or CounterFactory(), device, telemetry, stop, restored) as attempt,
    ):
        attempt.code = attempt.run()
    return attempt


def newest(run_dir):
    return checkpoint.load(checkpoint.newest(run_dir, pytest.fail))


def rows(run_dir, kind):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def held(parts) -> tuple[Replay, list[torch.Tensor]]:
    """The replay of a checkpoint, and each task's transitions, lane by lane."""
    stored = parts["replay"]
    replay = Replay(**stored["state"]["layout"])
    replay.load_state_dict(stored["state"])
    piece = stored["rows"]
    replay.put(Rows(piece["begin"], piece["end"], piece["data"].numpy()))
    transitions = replay._windows[torch.from_numpy(replay._lanes.transitions())]
    return replay, list(torch.split(transitions, replay.sizes.tolist()))


@pytest.mark.parametrize("num_envs", [1, 2, 3, 7, 20, 32])
def test_the_number_of_environments_changes_neither_updates_nor_data_per_task(tmp_path, num_envs):
    run(settings_for(tmp_path, "--total-steps", "1200", "--num-envs", str(num_envs)))
    parts = newest(tmp_path)
    step = parts["state"]["progress"]["step"]
    assert 1200 <= step < 1200 + num_envs
    warm = -(-60 // num_envs) * num_envs  # the first whole vector step after the warm-up
    expected = (step - warm) // 5
    # with fewer environments than tasks, learning waits until each task has been seen
    assert expected - (2 * 20 * num_envs) // 5 <= parts["state"]["progress"]["updates"] <= expected
    if num_envs >= 3:
        assert parts["state"]["progress"]["updates"] == expected
    sizes = held(parts)[0].sizes
    assert sizes.sum() == step
    assert sizes.max() - sizes.min() <= 2 * 20


def test_the_number_of_workers_changes_nothing_at_all(tmp_path):
    found = {}
    for workers in (0, 1, 3):
        run_dir = tmp_path / str(workers)
        run(settings_for(run_dir, "--total-steps", "600", "--num-envs", "5", "--workers", str(workers)))
        found[workers] = newest(run_dir)
    for workers in (1, 3):
        assert torch.equal(found[workers]["replay"]["rows"]["data"], found[0]["replay"]["rows"]["data"])
        ours, theirs = (found[key]["model"]["learner"]["policy"] for key in (workers, 0))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_is_remembered_is_what_happened(tmp_path):
    run(settings_for(tmp_path, "--total-steps", "900", "--num-envs", "4"))
    replay, transitions = held(newest(tmp_path))
    task = torch.arange(3).repeat_interleave(torch.from_numpy(replay.sizes))
    observation, action, reward, following = torch.split(torch.cat(transitions), [3, 2, 1, 3], dim=1)
    assert torch.equal(observation[:, 0], task.float())
    # also at the cut of an episode: the goal stays, the counter goes on, nothing of the next episode shows
    assert torch.equal(following, observation + torch.tensor([0.0, 0.0, 1.0]))
    torch.testing.assert_close(reward[:, 0], action.sum(1) + following[:, 2])
    assert following[:, 2].max() == 20


def test_observations_are_standardised_by_the_warm_up_and_never_again(tmp_path):
    run(settings_for(tmp_path / "a", "--total-steps", "72", "--num-envs", "4"))
    run(settings_for(tmp_path / "b", "--total-steps", "700", "--num-envs", "4"))
    early, late = (newest(tmp_path / name)["model"]["learner"]["policy"] for name in "ab")
    for name in ("encoder.mean", "encoder.std"):
        assert torch.equal(early[name], late[name])
    warm = torch.cat(held(newest(tmp_path / "a"))[1])
    assert early["encoder.mean"][0] == pytest.approx(warm[:, 0].mean().item(), abs=0.05)
    assert early["encoder.std"].min() >= 0.02


class StopAt(StopSignals):
    """Receives SIGUSR1 after so many looks, of which the loop takes one a vector step."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self._looks = looks

    def __bool__(self) -> bool:
        self._looks -= 1
        if self._looks <= 0:
            self._note(10, None)
        return super().__bool__()


@pytest.mark.parametrize("looks", [1, 8, 60])
def test_an_interrupted_run_goes_on_where_it_was(tmp_path, looks):
    settings = settings_for(tmp_path, "--total-steps", "800", "--num-envs", "4")
    attempt = run(settings, stop=StopAt(looks))
    assert attempt.code == 85
    first = newest(tmp_path)
    progress = first["state"]["progress"]
    assert progress["step"] == 4 * (looks - 1)
    second = run(replace(settings, attempt=1), restored=first)
    assert second.code == 0
    last = newest(tmp_path)
    assert last["state"]["progress"]["step"] == 800
    assert last["state"]["progress"]["updates"] == (800 - 60) // 5
    replay, after = held(last)
    # the episodes that were broken off are dropped, and those that begin in the middle are not stored
    assert 800 - 2 * 4 * 20 <= replay.sizes.sum() <= 800
    for before, now in zip(held(first)[1], after, strict=True):
        kept = {tuple(row.tolist()) for row in before} & {tuple(row.tolist()) for row in now}
        assert len(kept) >= len(before) - 2 * 20


def test_without_the_replay_the_policy_fills_it_again(tmp_path):
    settings = settings_for(tmp_path, "--total-steps", "400", "--num-envs", "4")
    run(settings)
    parts = newest(tmp_path)
    del parts["replay"]
    shutil.rmtree(checkpoint.directory(tmp_path))
    run(replace(settings, attempt=1, total_steps=600), restored=parts)
    last = newest(tmp_path)
    assert held(last)[0].sizes.sum() == 200
    # 60 of the 200 steps fill the replay, the others earn an update for every 5
    assert last["state"]["progress"]["updates"] == parts["state"]["progress"]["updates"] + 140 // 5


def test_metrics_say_what_the_contract_says(tmp_path):
    run(
        settings_for(
            tmp_path,
            *("--total-steps", "480", "--num-envs", "6", "--log-every", "120"),
            *("--eval-every", "240", "--checkpoint-every", "180"),
            *("--eval-episodes", "2", "--final-episodes", "4"),
        )
    )
    train = rows(tmp_path, "train")
    assert [row["step"] for row in train] == [120, 240, 360, 480]
    assert train[-1].keys() >= {
        "steps_per_second",
        "updates",
        "updates_per_second",
        "return/mean",
        "return/red",
    }
    assert train[-1].keys() >= {"alpha/green", "loss/critic", "loss/actor", "loss/alpha", "q/mean", "entropy"}
    assert [(row["step"], row["episodes"]) for row in rows(tmp_path, "eval")] == [(240, 2), (480, 4)]
    assert [row["step"] for row in rows(tmp_path, "checkpoint")] == [180, 360, 480]
    for row in rows(tmp_path, "checkpoint")[-1:]:
        assert (tmp_path / row["path"] / "manifest.json").exists()
    heartbeat = json.loads((tmp_path / "heartbeat.json").read_text())
    assert (heartbeat["step"], heartbeat["phase"]) == (480, "done")
    assert heartbeat["checkpoint"] == "checkpoints/step-000000000480"
