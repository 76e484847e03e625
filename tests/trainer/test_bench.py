"""The bench for real, with tiny numbers; and which settings it tries, in which order."""

import json
import signal
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import forked
from tests.trainer.processes import until
from tests.trainer.runs import changed
from trainer.bench import command
from trainer.bench import measure as measurements
from trainer.bench import process as bench_process
from trainer.bench.candidates import (
    Combination,
    combinations,
    environment_counts,
    table,
    worker_counts,
    worth_a_run,
)
from trainer.bench.filling import fill_rollout
from trainer.bench.measure import KINDS, adapted
from trainer.bench.process import Order, measure
from trainer.envs.choice import factory_for
from trainer.envs.vector import VectorEnv
from trainer.loops.rollout_learner import RolloutLearner
from trainer.ranks.parallel import Ranks
from trainer.settings import read_settings

OPTIONS = ["--recipe", "local-demo", "--device", "cpu", "--threads", "1"]


def never() -> bool:
    return False


def start(run_dir, *more: str):
    return forked.start(["bench", *OPTIONS, "--run-dir", str(run_dir), *more])


def test_environments_are_whole_copies_of_the_tasks_the_nearest_first():
    assert environment_counts(10, 10, 1_000_000, 500) == [10, 20, 40]
    assert environment_counts(10, 32, 1_000_000, 500) == [32, 40, 20, 10]
    assert environment_counts(1, 1, 1_000_000, 500) == [1, 2, 4, 8, 16]
    assert environment_counts(50, 50, 5_000_000, 500) == [50, 100, 200]


def test_a_small_replay_holds_few_environments():
    assert environment_counts(10, 10, 20_000, 500) == [10, 20]
    assert environment_counts(10, 10, 100, 500) == [10]


def test_workers_leave_the_learner_a_processor_first():
    assert worker_counts(16, 2) == [1, 2, 0]
    assert worker_counts(32, 16) == [11, 16, 6]
    assert worker_counts(1, 1) == [0, 1]


def test_steps_that_take_next_to_nothing_are_tried_in_the_learner_s_own_process():
    assert worker_counts(32, 16) == [11, 16, 6]
    assert worker_counts(32, 16, light=True) == [11, 16, 6, 0, 3]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["ppo", "sac"])
def test_recipes_on_an_environment_are_measured(tmp_path, recipe):
    small = {"ppo": {"rollout_size": 256}, "sac": {"replay_capacity": 4000, "batch_size": 32}}[recipe]
    words = ["--recipe", recipe, *changed(small), "--device", "cpu", "--num-envs", "4", "--workers", "0"]
    settings = adapted(read_settings([*words, "--run-dir", str(tmp_path)], {}))
    far = time.monotonic() + 100
    assert KINDS["envs"](settings, 0.05, far)["env_steps_per_second"] > 0
    alone = KINDS["updates"](settings, 0.05, far)
    assert alone["updates_per_second"] > 0
    found = KINDS["loop"](settings, 0.3, far)
    # whole rollouts, of ten epochs of four batches; one update a step
    each = found["steps_per_second"] / found["updates_per_second"]
    assert each == pytest.approx({"ppo": 256 / 40, "sac": 1.0}[recipe], rel=1e-6)
    assert found["host_bytes"] > 50 << 20


@pytest.mark.parametrize(("recipe", "helping"), [("ppo", True), ("sac", False)])
def test_environments_alone_are_stepped_by_those_who_step_them_in_a_run(
    tmp_path, monkeypatch, recipe, helping
):
    seen = []

    class Watched(VectorEnv):
        def __init__(self, *what, **how):
            seen.append(how["helping"])
            super().__init__(*what, **how)

    monkeypatch.setattr(measurements, "VectorEnv", Watched)
    settings = read_settings(["--recipe", recipe, "--workers", "0", "--run-dir", str(tmp_path)], {})
    KINDS["envs"](settings, 0.01, time.monotonic() + 100)
    assert seen == [helping]


def test_updates_of_a_rollout_that_break_off_are_counted_as_they_are(tmp_path):
    changes = changed({"rollout_size": 256, "target_kl": 1e-6})
    settings = read_settings(["--recipe", "ppo", *changes, "--run-dir", str(tmp_path)], {})
    factory = factory_for(settings.recipe.entry, settings.recipe.values, settings.tasks)
    learner = RolloutLearner(settings, factory, torch.device("cpu"), Ranks())
    filled = fill_rollout(learner, factory, np.random.default_rng(0))
    filled.learn()
    filled.learn()
    assert filled.each == 4, "of the first epoch alone"


def test_the_own_combination_comes_first_and_only_once():
    own = Combination(16, 1)
    found = combinations(own, [16, 8], 2)
    assert found == [own, *(Combination(*pair) for pair in [(8, 1), (16, 2), (8, 2), (16, 0), (8, 0)])]


def test_a_loop_that_waits_for_updates_is_tried_with_little():
    own = Combination(16, 3)
    rates = {own: 9000.0, Combination(32, 3): 9500.0, Combination(8, 1): 4000.0, Combination(8, 0): 2000.0}
    assert worth_a_run(own, rates, 3000.0)[:2] == [Combination(32, 3), Combination(8, 1)]
    assert worth_a_run(own, rates, 8800.0)[:2] == [Combination(32, 3), Combination(8, 1)]
    assert set(worth_a_run(own, rates, None)) == rates.keys() - {own}


@pytest.mark.slow
def test_a_measurement_is_made_in_a_process_of_its_own_and_one_that_fails_costs_only_itself(monkeypatch):
    monkeypatch.setattr(bench_process, "_GRACE_SECONDS", 0.0)
    order = Order("envs", 4, 0, "fp32")
    found = measure(order, ["--recipe", "a2c", *OPTIONS[2:]], 0.05, 300.0, never)
    assert found["env_steps_per_second"] > 0
    found = measure(order, ["--recipe", "local-demo", "--device", "cuda"], 60.0, 0.2, never)
    assert "time was up" in found["error"]
    found = measure(order, ["--recipe", "nothing"], 0.1, 60.0, never)
    assert "unknown recipe" in found["error"]
    assert measure(order, OPTIONS, 0.1, 60.0, lambda: True) == {
        "error": "it had not finished when the time was up"
    }


@pytest.mark.slow
def test_the_memory_of_evaluations_is_measured(tmp_path):
    words = [*OPTIONS, "--eval-episodes", "1", "--tasks", "reach", "--unlock", "tasks", "--num-envs", "2"]
    settings = read_settings([*words, "--workers", "0", "--run-dir", str(tmp_path)], {})
    found = KINDS["evaluation"](adapted(settings), 0.2, time.monotonic() + 120)
    assert found["host_bytes"] > 50 << 20  # a process with PyTorch and its environments


def measured_here(order: Order, options, seconds: float, limit: float, interrupted) -> dict:
    """As `measure`, in this process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        words = [order.kind, str(seconds), str(limit), str(file), *options, *order.options()]
        assert bench_process.main([*words, "--wandb", "disabled", "--run-dir", folder]) == 0
        return json.loads(file.read_text())


@pytest.mark.slow
def test_a_whole_bench(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "measure", measured_here)
    monkeypatch.setattr(bench_process, "_leave_with", lambda parent: None)
    tries = ["--try-num-envs", "4", "--try-workers", "0", "--num-envs", "4", "--workers", "0"]
    tries += ["--try-precision", "fp32", "--seconds", "240", "--each", "0.2", "--eval-every", "0"]
    assert command.main([*OPTIONS, "--run-dir", str(tmp_path), *tries]) == 0
    output = capsys.readouterr().out
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["complete"] is True
    assert found["own"] == {"num_envs": 4, "workers": 0, "precision": "fp32"}
    assert found["device"]["type"] == "cpu"
    assert {row["kind"] for row in found["rows"]} == {"loop", "envs", "updates"}
    first = found["rows"][0]
    assert (first["kind"], first["error"]) == ("loop", None)
    assert first["steps_per_second"] > first["updates_per_second"] > 0
    # the replay counts as full, although hardly anything is in it
    assert first["host_bytes"] > 256_000 * 44 * 4
    assert "whole loop" in table(found["rows"])[1]
    assert table(found["rows"])[1] in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.json", "heartbeat.json"]


@pytest.mark.slow
def test_a_signal_ends_it_and_what_it_was_at(tmp_path):
    process = start(tmp_path, "--num-envs", "4", "--seconds", "300")
    until(process, (tmp_path / "heartbeat.json").exists)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "SIGTERM received, 0 measurements made" in output
    assert not (tmp_path / "bench.json").exists()
    assert "trainer: the whole loop could not be measured: interrupted" in output
    assert not measuring(tmp_path)


def measuring(run_dir) -> list[str]:
    """Processes with this run directory on their command line."""
    return [file.parent.name for file in Path("/proc").glob("[0-9]*/cmdline") if str(run_dir) in text(file)]


def text(file: Path) -> str:
    try:
        return file.read_text(errors="replace")
    except OSError:
        return ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--try-workers", "a"], "--try-workers a: must be whole numbers"),
        (["--try-precision", "fp8"], "'fp8' is not one of fp32, tf32, bf16"),
        (["--seconds", "3"], "3 is not a whole number of at least 20"),
        (["--no-such"], "unknown argument '--no-such'"),
        (["--recipe", "ppo", "--try-num-envs", "4"], "with ppo their number says how long a rollout is"),
    ],
)
def test_wrong_arguments_are_one_line(tmp_path, more, said):
    process = start(tmp_path, *more)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 2
    assert said in output
    assert len(output.splitlines()) <= 2
