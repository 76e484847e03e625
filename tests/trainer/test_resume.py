"""Interrupt a run anywhere, resume it, and it ends with the same parameters to the bit. Real Meta-World."""

import gc
import os
import random
import re
import signal
import time
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.sampling import SEED
from tests.trainer.processes import checkpoints, finish, start, until
from tests.trainer.runs import StopAt, changed, events, rows, train
from trainer.settings import TrainSettings, read_settings

TOTAL, ENVS = 900, 5
"""Five environments on two tasks: one of them moves from task to task."""

SIGNALS = [signal.SIGUSR1, signal.SIGKILL, signal.SIGTERM]

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
    return [
        *("--recipe", "local-demo", "--run-dir", str(run_dir), "--num-envs", str(ENVS), *changed(CHANGES)),
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
    assert train(settings).code == 0
    return digest(run_dir)


def interrupted(run_dir, after: list[int], *argv: str) -> str:
    """Interrupts each attempt after so many vector steps, and lets the last one end."""
    settings = settings_for(run_dir, *argv)
    for attempt, steps in enumerate([*after, TOTAL]):
        # a later process may begin with whatever random numbers
        how = {"resume": True, "seed": 1000 + attempt} if attempt else {}
        code = train(replace(settings, attempt=attempt), stop=StopAt(steps), **how).code
        assert code == (0 if steps == TOTAL else 85)
    gc.collect()  # environments refer to themselves: 90 MB an attempt would stay for long
    return digest(run_dir)


@pytest.mark.slow
@pytest.mark.exhaustive
def test_twenty_interruptions_anywhere_change_nothing(tmp_path, whole):
    """Four in each of five runs: what one of them changed, those after it would not change back."""
    points = sorted(random.Random(0).sample(range(TOTAL // ENVS), 20))
    for number in range(5):
        at = points[number::5]
        after = [at[0], *(there - here for here, there in pairwise(at))]
        assert interrupted(tmp_path / str(number), after) == whole, f"interrupted after {at} vector steps"


@pytest.mark.slow
def test_interruptions_one_after_the_other_change_nothing(tmp_path, whole):
    anywhere = random.Random(SEED).randrange(TOTAL // ENVS - 100)
    assert interrupted(tmp_path, [3, 30, 1, anywhere, 60]) == whole, f"the fourth after {anywhere}"


def attempt_at(run_dir, attempt: int, total: int, workers: int, evaluations: int):
    words = ["train", *arguments(run_dir), "--total-steps", str(total), "--checkpoint-every", "300"]
    words += ["--eval-every", str(evaluations), "--eval-episodes", "1", "--log-every", "100"]
    words += ["--workers", str(workers)]
    return start(run_dir, *words, attempt=attempt)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("numbers", "workers", "evaluations"),
    [
        ([signal.SIGUSR1, signal.SIGKILL], 0, 0),
        pytest.param([*SIGNALS, signal.SIGKILL], 1, 1000, marks=pytest.mark.exhaustive),
    ],
    ids=["two", "four"],
)
def test_signals_and_kill_9_change_nothing(tmp_path, numbers, workers, evaluations):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    moment = random.Random(SEED)
    numbers = moment.sample(numbers, len(numbers))
    for attempt, number in enumerate(numbers):
        process = attempt_at(broken, attempt, 10**9, workers, evaluations)
        before = len(rows(broken, "checkpoint"))
        until(process, lambda before=before: len(rows(broken, "checkpoint")) > before)
        time.sleep(moment.random() / 2)  # anywhere
        os.killpg(process.pid, number)
        output = finish(process)
        assert process.returncode == (-9 if number == signal.SIGKILL else 85), output
    # not by the heartbeat, which may be a second old, or more where the disk is slow: a run whose last step
    # lies before its newest checkpoint is over at once
    newest = int(checkpoints(broken)[-1].name.removeprefix("step-"))
    total = max(1000, newest) + 200
    for run_dir, attempt in ((broken, len(numbers)), (whole, 0)):
        output = finish(attempt_at(run_dir, attempt, total, workers, evaluations))
        assert "final model have the sha256" in output, output
    assert digest(broken) == digest(whole), (numbers, total)
    success = [
        {row["step"]: row["success/mean"] for row in rows(run_dir, "eval")} for run_dir in (whole, broken)
    ]
    assert success[0] == success[1]
    assert (1000 in success[0]) == bool(evaluations)
