"""Evaluation beside training: equal to evaluation alone, nothing lost or left behind whatever happens."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.trainer.test_vector import alive
from tests.trainer.toys import CounterFactory, GatedFactory
from tests.trainer.warm import cold
from tests.waiting import until
from trainer.errors import WorkerError
from trainer.evaluation.background import BackgroundEvaluator
from trainer.evaluation.evaluator import Evaluator, spread_goals
from trainer.evaluation.result import Evaluation
from trainer.nn.policy import Policy

# real processes, a second or more each
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("warm_processes")]

GOALS = spread_goals(10, 10, 50)


def policy(seed: int) -> Policy:
    torch.manual_seed(seed)
    sizes = {"hidden": [16, 16], "one_hot": True, "multi_head": True}
    made = Policy(3, 2, 3, **sizes, init="he_uniform", log_std_bounds=(-20, 2))
    made.encoder.fit(torch.randn(20, 3), std_floor=0.1)
    for last in (made.actor.weights[-1], made.actor.biases[-1]):
        last.data.uniform_(-0.5, 0.5)
    return made


def alone(weights: Policy, goals=GOALS) -> Evaluation:
    """What a synchronous evaluation in this process finds."""
    evaluator = Evaluator(CounterFactory(), 10, max_steps=30)
    return evaluator.run(partial(weights.act, greedy=True), goals)


def same(found: Evaluation, expected: Evaluation) -> bool:
    assert len(np.unique(expected.returns)) > expected.returns.size // 2  # the actions tell in the returns
    return (
        tuple(found.tasks) == tuple(expected.tasks)
        and np.array_equal(found.goals, expected.goals)
        and np.array_equal(found.success, expected.success)
        and np.array_equal(found.returns, expected.returns)
    )


def background(factory, workers=0, **changes) -> BackgroundEvaluator:
    return BackgroundEvaluator(factory, policy(0), 10, workers, 1, **{"max_steps": 30, **changes})


@pytest.fixture(scope="module")
def gate(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("gate") / "closed"


@pytest.fixture(scope="module")
def shared(gate, warm_processes) -> Iterator[BackgroundEvaluator]:
    with background(GatedFactory(gate=gate), workers=1) as evaluator:
        yield evaluator


@pytest.fixture
def evaluator(shared, gate) -> Iterator[BackgroundEvaluator]:
    yield shared
    gate.unlink(missing_ok=True)
    shared.wait()


def test_it_finds_what_an_evaluation_alone_finds(evaluator):
    first, second = policy(1), policy(2)
    expected = [alone(first), alone(second, GOALS[:4]), alone(first)]
    evaluator.submit(100, first.state_dict(), GOALS, {"norm/actor": 2.5})
    evaluator.submit(200, second.state_dict(), GOALS[:4])
    evaluator.submit(300, first.state_dict(), GOALS)
    first.load_state_dict(second.state_dict())  # training goes on: the weights were copied
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        os.kill(evaluator.pid, number)  # it is the parent's to act on them
    found = evaluator.wait()
    assert [done.step for done in found] == [100, 200, 300]
    assert [done.notes for done in found] == [{"norm/actor": 2.5}, {}, {}]
    assert all(done.seconds > 0 for done in found)
    assert all(same(done.evaluation, one) for done, one in zip(found, expected, strict=True))
    assert not same(found[0].evaluation, alone(second))
    assert evaluator.pending() == []
    assert evaluator.poll() == []


def test_training_goes_first(evaluator):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    until(lambda: os.getpriority(os.PRIO_PROCESS, evaluator.pid) > own)


def test_a_third_submission_waits_and_says_that_it_does(evaluator, gate):
    gate.touch()
    asked = []

    def never() -> bool:
        pytest.fail("there was room")

    def open_the_gate() -> bool:
        asked.append(len(evaluator.pending()))
        if len(asked) == 3:
            gate.unlink()
        return False

    evaluator.submit(1, policy(1).state_dict(), GOALS, interrupted=never)
    evaluator.submit(2, policy(1).state_dict(), GOALS, interrupted=never)
    assert evaluator.poll() == []
    evaluator.submit(3, policy(1).state_dict(), GOALS, interrupted=open_the_gate)
    assert asked[:3] == [3, 3, 3]
    assert [done.step for done in (*evaluator.poll(), *evaluator.wait())] == [1, 2, 3]


def test_what_is_interrupted_is_played_after_a_resumption(evaluator, gate, tmp_path):
    gate.touch()
    calls = iter(range(10))
    for step in (1, 2, 3):
        goals = GOALS[:step]
        evaluator.submit(step, policy(step).state_dict(), goals, {"q/red": 0.5}, interrupted=lambda: True)
    assert evaluator.wait(lambda: next(calls) >= 2) == []
    torch.save(evaluator.pending(), tmp_path / "state.pt")
    evaluator.restart()  # ends workers that are in the middle of a step
    gate.unlink()
    kept = evaluator.wait()

    for entry in torch.load(tmp_path / "state.pt", weights_only=True):
        evaluator.submit(**entry)
    resumed = [*evaluator.poll(), *evaluator.wait()]
    for found in (kept, resumed):
        assert [(done.step, done.notes) for done in found] == [(step, {"q/red": 0.5}) for step in (1, 2, 3)]
        assert all(same(done.evaluation, alone(policy(done.step), GOALS[: done.step])) for done in found)


def test_one_that_is_killed_is_named_and_replaced(evaluator, gate):
    gate.touch()
    evaluator.submit(1, policy(1).state_dict(), GOALS)
    before = [evaluator.pid, *descendants(evaluator.pid)]
    os.kill(evaluator.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match=rf"the evaluator \(pid {before[0]}\) died by SIGKILL"):
        evaluator.wait()
    evaluator.submit(2, policy(2).state_dict(), GOALS)  # takes what is submitted all the same
    gate.unlink()
    with pytest.raises(WorkerError, match="died by SIGKILL"):
        evaluator.poll()
    evaluator.restart()
    first, second = evaluator.wait()
    assert same(first.evaluation, alone(policy(1)))
    assert same(second.evaluation, alone(policy(2)))
    assert_gone(before)


def test_a_stopped_one_is_found_and_ended(gate):
    gate.touch()
    with background(GatedFactory(gate=gate), step_timeout=3.0) as evaluator:
        gate.unlink()
        evaluator.submit(1, policy(1).state_dict(), GOALS)
        evaluator.wait()  # so that it has stepped
        gate.touch()
        evaluator.submit(2, policy(1).state_dict(), GOALS)
        os.kill(evaluator.pid, signal.SIGSTOP)
        with pytest.raises(WorkerError, match=r"evaluator .* has made no step for 4 s"):
            evaluator.wait()
        pid = evaluator.pid
    assert_gone([pid])


@pytest.mark.parametrize(
    ("fault", "workers", "sentence", "hint"),
    [
        ("exit", 1, r"failed: the environment worker of .*green.* died with exit code 7", "os._exit"),
        ("hang", 1, r"failed: the environment worker of .*green.* has not answered", "resume"),
        ("raise", 0, r"failed: ValueError: the drawer fell off", "in step"),
    ],
)
def test_a_fault_in_its_environments_is_passed_on(fault, workers, sentence, hint):
    with background(CounterFactory(fault=fault), workers, step_timeout=2.0) as evaluator:
        evaluator.submit(1, policy(1).state_dict(), GOALS)
        with pytest.raises(WorkerError, match=sentence) as caught:
            evaluator.wait()
        assert hint in caught.value.hint
        processes = [evaluator.pid, *descendants(evaluator.pid)]
    assert_gone(processes)


def test_close_ends_it_whatever_it_is_doing():
    with cold():
        starting = background(CounterFactory(), workers=2)
    pid = starting.pid
    starting.close()
    assert_gone([pid])
    starting.close()
    with pytest.raises(WorkerError):
        starting.poll()


def test_no_process_outlives_a_parent_that_is_killed(gate):
    gate.touch()
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            with cold():
                evaluator = background(GatedFactory(gate=gate), workers=2)
            evaluator.submit(1, policy(1).state_dict(), GOALS)
            evaluator.wait(lambda: len(descendants(evaluator.pid)) == 2)
            os.write(tell, b"%d\n" % evaluator.pid)
            evaluator.wait()
        finally:
            os._exit(1)
    os.close(tell)
    with os.fdopen(told) as answer:
        evaluator = int(answer.readline())
    processes = [evaluator, *descendants(evaluator)]
    assert len(processes) == 3
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert_gone(processes)
    gate.unlink()


def descendants(pid: int) -> list[int]:
    try:
        listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [each for child in map(int, listed) for each in (child, *descendants(child))]


def assert_gone(pids: list[int]) -> None:
    until(lambda: not any(alive(pid) for pid in pids))
