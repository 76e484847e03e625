"""The trainer as a process: real Meta-World, real workers, real signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from tests.trainer.processes import SMALL, checkpoints, finish, start, step_of, until
from tests.trainer.runs import changed, rows
from tests.trainer.test_checkpoint import truncate
from trainer.drill import FURTHER
from trainer.machine.processors import usable_processors

pytestmark = pytest.mark.slow  # each test trains in processes of its own

HABITS = ("--wandb", "disabled", "--eval-every", "0", "--num-envs", "2")
ROBOTS = [
    *("train", "--recipe", "local-demo", "--tasks", "reach,door-close", "--unlock", "tasks", *HABITS, *SMALL),
    *("--set", "warmup_steps=200", "--unlock", "warmup_steps", "--checkpoint-every", "400"),
]
PENDULUM = ["train", "--recipe", "sac", *HABITS, *SMALL, "--checkpoint-every", "400"]
FOR_EVER = ("--total-steps", "1_000_000_000")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGUSR1, 85), (signal.SIGINT, 130)])
def test_a_signal_to_the_whole_group_ends_in_a_checkpoint_that_the_next_attempt_continues(
    tmp_path, number, code
):
    process = start(tmp_path, *PENDULUM, "--workers", "1", *FOR_EVER)
    until(process, lambda: step_of(tmp_path) >= 250)
    os.killpg(process.pid, number)  # as Slurm does
    output = finish(process)
    assert process.returncode == code, output
    assert re.search(r"learning on cpu \(.+\) in fp32, 2 environments in 1 worker process", output)
    left_at = int(checkpoints(tmp_path)[-1].name.removeprefix("step-"))
    assert left_at >= 250

    total = left_at + 300
    process = start(tmp_path, *PENDULUM, "--workers", "1", "--total-steps", str(total), attempt=1)
    output = finish(process)
    assert process.returncode == 0, output
    assert f"resumed from step-{left_at:012d}" in output
    assert int(checkpoints(tmp_path)[-1].name.removeprefix("step-")) == total
    assert (tmp_path / "checkpoints" / "final_model.pt").exists()
    assert step_of(tmp_path) == total
    assert [row["attempt"] for row in rows(tmp_path, "run")] == [0, 1]
    changed = {"actor_hidden", "critic_hidden", "batch_size", "env_steps_per_update"}
    assert rows(tmp_path, "run")[1]["modified"].keys() == changed
    assert rows(tmp_path, "run")[1]["processors"] == usable_processors()
    assert "Traceback" not in output


def test_a_torn_checkpoint_is_passed_over_when_resuming(tmp_path):
    here = [*PENDULUM, "--workers", "0"]
    output = finish(start(tmp_path, *here, "--total-steps", "800"))
    assert [path.name[-3:] for path in checkpoints(tmp_path)] == ["400", "800"], output
    truncate(checkpoints(tmp_path)[-1])

    # a start that does not ask to resume does not touch a run that is there
    process = start(tmp_path, *here, "--total-steps", "900")
    output = finish(process)
    assert (process.returncode, output.count("\n")) == (2, 2), output
    assert "already holds checkpoints" in output

    process = start(tmp_path, *here, "--total-steps", "900", "--resume")
    output = finish(process)
    assert process.returncode == 0, output
    assert "refused" in output
    assert "model.pt has 100 bytes" in output
    assert "resumed from step-000000000400" in output

    other = [*here, "--set", "gamma=0.9", "--unlock", "gamma"]
    process = start(tmp_path, *other, "--total-steps", "1000", "--resume", str(checkpoints(tmp_path)[-1]))
    output = finish(process)
    assert process.returncode == 1
    assert "was made with gamma = 0.99, this run has 0.9" in output

    process = start(tmp_path, "evaluate", str(tmp_path), "--episodes", "2", "--workers", "0", "--json")
    output = finish(process)
    assert process.returncode == 0, output
    found = json.loads(output)
    assert found["step"] == 900
    assert found["episodes"] == 2
    assert "return/Pendulum-v1" in found


def test_a_worker_killed_in_a_run_ends_it_with_its_task_named(tmp_path):
    process = start(tmp_path, *ROBOTS, "--workers", "1", *FOR_EVER)
    until(process, lambda: step_of(tmp_path) >= 50)
    listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    children = [int(pid) for pid in listed.split()]
    worker = next(pid for pid in children if "spawn_main" in command_line(pid))
    os.kill(worker, signal.SIGKILL)
    output = finish(process)
    assert process.returncode == 1
    assert re.search(r"worker of reach-v3, door-close-v3 \(pid \d+\) died by SIGKILL", output)
    assert "Traceback" not in output
    assert checkpoints(tmp_path)  # what was learnt so far can be resumed


def command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["trian"], "unknown command 'trian'; did you mean train"),
        (["train", "--recipe", "local-dem"], "local-demo"),
        (["train", "--recipe", "local-demo", "--numenvs", "3"], "did you mean --num-envs"),
        (["train", "--recipe", "ppo", "--num-envs", "7"], "take 7 or 293, or auto"),
        (["train", "--recipe", "local-demo", "--set", "gamma=0.9"], "--unlock gamma"),
    ],
)
def test_bad_arguments_end_with_code_2_and_say_so_in_a_line(tmp_path, argv, said):
    process = start(tmp_path, *argv)
    output = finish(process)
    assert process.returncode == 2
    assert said in output.splitlines()[0]
    assert len(output.splitlines()) <= 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [["--help"], ["train", "--help"], ["evaluate", "--help"]])
def test_help_needs_no_heavy_import(argv):
    script = (
        "import sys, atexit\n"
        "atexit.register(lambda: print('torch' in sys.modules))\n"
        f"from trainer.__main__ import main; sys.exit(main({argv}))"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "usage: python -m trainer" in output
    assert output.splitlines()[-1] == "False"


def test_reaching_for_one_place_is_learnt(tmp_path):
    """The arm comes to earn a multiple of what random actions in the warm-up do."""
    changes = {"goals_per_task": 1, "evaluation_goals": 1, "evaluation_episodes": 1, "gamma": 0.9}
    changes |= {"actor_hidden": 64, "critic_hidden": 64, "batch_size": 128, "env_steps_per_update": 8}
    changes |= {"tasks": "reach", "warmup_steps": 1000, "episode_steps": 100}
    words = changed(changes)
    words += ["--recipe", "local-demo", "--num-envs", "8", "--total-steps", "8000", "--seed", "1"]
    words += ["--workers", "0", "--eval-every", "0", "--log-every", "1000", "--wandb", "disabled"]
    output = finish(start(tmp_path, "train", *words))
    earned = [row["return/reach-v3"] for row in rows(tmp_path, "train") if "return/reach-v3" in row]
    assert earned[-1] > 2 * earned[0], (earned, output)


def learnt_at(run_dir) -> int | None:
    """The step of the first evaluation that has, with the one before it, a mean of 90%."""
    for before, now in pairwise(rows(run_dir, "eval")):
        if before["success/mean"] + now["success/mean"] >= 1.8:
            return now["step"]
    return None


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
def test_four_tasks_are_learnt(tmp_path):
    """The demo's recipe reaches 90% within 256 000 steps; as soon as it has, the run may end.

    Over seeds it ended at 92 to 98% on ten goals a task; single evaluations on the way dip by 0.1. With this
    seed it is there after 96 000 steps; where numbers are rounded otherwise, it may take longer.
    """
    argv = ("train", "--recipe", "local-demo", "--num-envs", "16", "--total-steps", "256_000", "--seed", "2")
    often = ("--eval-every", "16_000", "--checkpoint-every", "16_000", "--keep", "20")
    process = start(tmp_path, *argv, *often, "--wandb", "disabled")
    deadline = time.monotonic() + 750
    while process.poll() is None and learnt_at(tmp_path) is None:
        assert time.monotonic() < deadline, rows(tmp_path, "eval")
        time.sleep(0.5)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGUSR1)
    output = finish(process)
    assert process.returncode in (0, 85), output
    step = learnt_at(tmp_path)
    assert step is not None, [row["success/mean"] for row in rows(tmp_path, "eval")]

    reached = tmp_path / "checkpoints" / f"step-{step:012d}"
    process = start(tmp_path, "evaluate", str(reached), "--episodes", "50", "--workers", "1", "--json")
    found = json.loads(finish(process))
    assert (found["step"], found["episodes"]) == (step, 50)
    assert found["success/mean"] >= 0.85, found
    # the return says so too, and of reach, where success comes by chance the least
    reach = [row["return/reach-v3"] for row in rows(tmp_path, "train") if step - 16_000 < row["step"] <= step]
    assert sum(reach) / len(reach) / 200 >= 5.0  # a random policy gets 1.4 to 1.9 a step


DRILL = [
    *("drill", "--recipe", "sac", *SMALL, "--num-envs", "4", "--workers", "0", "--eval-every", "0"),
    *("--checkpoint-every", "0", "--device", "cpu", "--wandb", "disabled"),
]


def test_it_waits_for_the_signal_and_then_goes_a_little_further(tmp_path):
    first = start(tmp_path, *DRILL)
    until(first, lambda: step_of(tmp_path) >= 100)
    first.send_signal(signal.SIGUSR1)
    output = finish(first)
    assert first.returncode == 85, output
    reached = step_of(tmp_path)
    second = start(tmp_path, *DRILL, attempt=1)
    output = finish(second)
    assert second.returncode == 0, output
    assert step_of(tmp_path) == reached + FURTHER
