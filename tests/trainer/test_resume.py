"""Interrupt a run anywhere, resume it, and it ends with the same parameters to the bit. Real Meta-World."""

import gc
import os
import random
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.trainer.runs import StopAt, events, rows, run
from trainer.envs.metaworld import MetaworldFactory
from trainer.settings import TrainSettings, read_settings

TOTAL, ENVS = 1500, 5
"""Five environments on two tasks: one of them moves from task to task."""

CHANGES = {
    "tasks": "reach,push",
    "actor_hidden": "16",
    "critic_hidden": "16",
    "episode_steps": "40",
    "warmup_steps": "100",
    "env_steps_per_update": "7",
    "batch_size": "15",
    "replay_capacity": "600",
}
"""Short episodes and a replay that overflows, so that every interruption falls into something."""


def arguments(run_dir) -> list[str]:
    changes = [
        part for key, value in CHANGES.items() for part in ("--set", f"{key}={value}", "--unlock", key)
    ]
    return [
        *("--recipe", "local-demo", "--run-dir", str(run_dir), "--num-envs", str(ENVS), *changes),
        *("--total-steps", str(TOTAL), "--wandb", "disabled", "--seed", "3"),
    ]


def settings_for(run_dir, *argv: str) -> TrainSettings:
    return read_settings([*arguments(run_dir), "--workers", "0", "--eval-every", "0", *argv], {})


def digest(run_dir) -> str:
    return re.search(r"final model have the sha256 (\w{64})", "\n".join(events(run_dir)))[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> str:
    """The digest of a run that nothing interrupts."""
    run_dir = tmp_path_factory.mktemp("whole")
    settings = settings_for(run_dir)
    assert run(settings, MetaworldFactory(settings.tasks)).code == 0
    return digest(run_dir)


def interrupted(run_dir, after: list[int], *argv: str) -> str:
    """Interrupts each attempt after so many vector steps, and lets the last one end."""
    settings = settings_for(run_dir, *argv)
    factory = MetaworldFactory(settings.tasks)
    for attempt, steps in enumerate([*after, TOTAL]):
        # a later process may begin with whatever random numbers
        how = {"resume": True, "seed": 1000 + attempt} if attempt else {}
        code = run(replace(settings, attempt=attempt), factory, stop=StopAt(steps), **how).code
        assert code == (0 if steps == TOTAL else 85)
    gc.collect()  # environments refer to themselves: 90 MB an attempt would stay for long
    return digest(run_dir)


@pytest.mark.slow
def test_twenty_interruptions_anywhere_change_nothing(tmp_path, whole):
    """Four in each of five runs: what one of them changed, those after it would not change back."""
    points = sorted(random.Random(0).sample(range(TOTAL // ENVS), 20))
    for number in range(5):
        at = points[number::5]
        after = [at[0], *(there - here for here, there in pairwise(at))]
        assert interrupted(tmp_path / str(number), after) == whole, f"interrupted after {at} vector steps"


def test_interruptions_one_after_the_other_change_nothing(tmp_path, whole):
    assert interrupted(tmp_path, [3, 30, 1, 77, 60]) == whole


def start(run_dir, attempt: int) -> subprocess.Popen:
    argv = [*arguments(run_dir), "--total-steps", "8000", "--checkpoint-every", "300"]
    argv += ["--workers", "1", "--eval-every", "2000", "--eval-episodes", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "trainer", "train", *argv],
        env=os.environ | {"CLUSTERKIT_ATTEMPT": str(attempt)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def saved(run_dir) -> int:
    """How many checkpoints the run has recorded."""
    try:
        return len(rows(run_dir, "checkpoint"))
    except (FileNotFoundError, ValueError):  # a line may be half written
        return 0


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_signals_and_kill_9_change_nothing(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    output, _ = start(whole, 0).communicate(timeout=300)
    moment = random.Random(2)
    for attempt, number in enumerate([signal.SIGUSR1, signal.SIGKILL, signal.SIGTERM, signal.SIGKILL]):
        process = start(broken, attempt)
        before = saved(broken)
        deadline = time.monotonic() + 240
        while saved(broken) <= before and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(moment.random())
        assert process.poll() is None, process.communicate()[0]
        os.killpg(process.pid, number)
        output, _ = process.communicate(timeout=180)
        assert process.returncode == (-9 if number == signal.SIGKILL else 85), output
    output, _ = start(broken, 4).communicate(timeout=300)
    assert digest(broken) == digest(whole), output
    evaluations = [
        {row["step"]: row["success/mean"] for row in rows(each, "eval")} for each in (whole, broken)
    ]
    assert evaluations[0] == evaluations[1]
    assert sorted(evaluations[0]) == [2000, 4000, 6000, 8000]
