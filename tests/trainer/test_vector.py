import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.toys import CounterFactory
from tests.trainer.warm import cold
from tests.waiting import until
from trainer.envs.faults import fault_of
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.schedule import Orders, Schedule, WorkerCommand
from trainer.envs.vector import VectorEnv
from trainer.envs.worker import remedy
from trainer.errors import WorkerError

pytestmark = pytest.mark.usefixtures("warm_processes")


def orders(command: WorkerCommand, task: list[int], goal: list[int]) -> Orders:
    return Orders(np.full(len(task), command, np.int8), np.array(task, np.int32), np.array(goal, np.int32))


class Interrupted:
    """Everything that comes out of a scheduled run, before and after a stop in the middle."""

    def __init__(self, factory, num_envs: int, episode_steps: int) -> None:
        self._factory, self._num_envs, self._episode_steps = factory, num_envs, episode_steps
        self._rng, self._actions = np.random.default_rng(0), np.random.default_rng(1)
        self._schedule = self._planned(None)
        self._states = None
        self.rows: list[np.ndarray] = []

    def play(self, steps: int, workers: int, helping: bool = False) -> None:
        with VectorEnv(self._factory, self._num_envs, workers=workers, helping=helping) as vector:
            if self._states is None:
                vector.reset(self._schedule.first())
            else:
                vector.restore(self._states)
            for _ in range(steps):
                shape = self._num_envs, self._factory.action_dim
                shown, action = vector.observation, self._actions.uniform(-1, 1, shape).astype(np.float32)
                vector.start(self._schedule.advance(), action)
                reward, success, led_to, *_ = vector.wait()
                row = [shown, led_to, reward[:, None], success[:, None]]
                self.rows.append(np.concatenate(row, axis=1))
            self._states = json.loads(json.dumps(vector.state()))
        self._schedule = self._planned(json.loads(json.dumps(self._schedule.state())))

    def _planned(self, state) -> Schedule:
        tasks = len(self._factory.tasks)
        return Schedule(self._num_envs, tasks, self._episode_steps, 50, self._rng, stagger=True, state=state)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workers", "helping"),
    [(2, True), *(pytest.param(*other, marks=pytest.mark.exhaustive) for other in ((1, False), (3, False)))],
)
def test_a_run_is_the_same_to_the_bit_with_any_workers_wherever_it_goes_on(workers, helping):
    factory = MetaworldFactory(("push-v3", "drawer-close-v3"))
    # five environments over two tasks: one of them moves, from worker-owned to worker-owned environment
    whole, stopped = Interrupted(factory, 5, 20), Interrupted(factory, 5, 20)
    whole.play(90, workers=0)
    stopped.play(17, workers=0)
    stopped.play(45, workers, helping)
    stopped.play(28, workers=0)
    assert np.array_equal(stopped.rows, whole.rows)
    assert whole.rows[0].dtype == np.float32
    assert len(np.unique(np.array(whole.rows)[:, 0, 36:39], axis=0)) > 2  # several goals were played


@pytest.fixture(scope="module", params=[0, 2], ids="workers={}".format)
def sound(request: pytest.FixtureRequest, warm_processes: None) -> Iterator[VectorEnv]:
    """Three counters that nothing is the matter with."""
    with VectorEnv(CounterFactory(), 3, workers=request.param) as vector:
        yield vector


def test_what_an_action_led_to_is_kept_where_the_episode_is_cut(sound):
    action = np.ones((3, 2), np.float32)
    sound.reset(orders(WorkerCommand.RESET, [0, 1, 2], [2, 5, 5]))
    sound.start(orders(WorkerCommand.STEP, [0, 0, 0], [0, 0, 0]), action)
    sound.wait()
    sound.start(orders(WorkerCommand.STEP_THEN_RESET, [2, 1, 0], [8, 9, 10]), action)
    outcome = sound.wait()
    assert outcome.next_observation.tolist() == [[0, 2, 2], [1, 5, 2], [2, 5, 2]]
    assert outcome.reward.tolist() == [4, 4, 4]
    assert outcome.success.tolist() == [True, False, False]
    assert sound.observation.tolist() == [[2, 8, 0], [1, 9, 0], [0, 10, 0]]


def test_an_idle_environment_stands_still(sound):
    sound.reset(orders(WorkerCommand.RESET, [0, 1, 2], [5, 5, 5]))
    mixed = orders(WorkerCommand.STEP, [0, 1, 2], [0, 0, 0])
    mixed.command[1] = WorkerCommand.IDLE
    sound.start(mixed, np.zeros((3, 2), np.float32))
    sound.wait()
    assert sound.observation.tolist() == [[0, 5, 1], [1, 5, 0], [2, 5, 1]]


def test_the_state_tells_where_each_environment_is(sound):
    sound.reset(orders(WorkerCommand.RESET, [0, 1, 2], [2, 5, 9]))
    sound.start(orders(WorkerCommand.STEP, [0, 1, 2], [0, 0, 0]), np.zeros((3, 2), np.float32))
    sound.wait()
    states = sound.state()
    assert states == [
        {"task": task, "goal": goal, "observation": [task, goal, 1], "env": {"steps": 1}}
        for task, goal in enumerate((2, 5, 9))
    ]
    sound.restore(states[::-1])
    assert sound.observation.tolist() == [[2, 9, 1], [1, 5, 1], [0, 2, 1]]
    sound.start(orders(WorkerCommand.STEP, [2, 1, 0], [0, 0, 0]), np.zeros((3, 2), np.float32))
    outcome = sound.wait()
    assert outcome.next_observation.tolist() == [[2, 9, 2], [1, 5, 2], [0, 2, 2]]
    assert outcome.success.tolist() == [False, False, True]


def test_states_of_any_size_pass_through_the_socket(sound):
    sound.reset(orders(WorkerCommand.RESET, [0, 1, 2], [2, 5, 9]))
    states = sound.state()
    for state in states:
        state["env"] |= {"steps": 4, "ballast": "x" * 1_000_000}
    sound.restore(states)
    assert [state["env"]["steps"] for state in sound.state()] == [4, 4, 4]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_an_environment_has_to_say_is_passed_on_once(workers):
    with VectorEnv(CounterFactory(fault="note"), 4, workers=workers) as vector:
        vector.reset(orders(WorkerCommand.RESET, [0, 0, 2, 0], [9, 9, 9, 9]))
        assert [note.split() for note in vector.take_notes()] == [
            ["task", "0", "squeaks"],
            ["task", "2", "squeaks"],
        ]
        step_until_fault(vector, (1, 0, 2, 0))  # makes one environment more
        assert [note.split() for note in vector.take_notes()] == [["task", "1", "squeaks"]]
        assert vector.take_notes() == []


def stands_still(vector: VectorEnv) -> list[dict]:
    vector.reset(orders(WorkerCommand.RESET, [0, 1], [9, 9]))
    return [{"task": task, "goal": 9, "observation": [0, 0, 0], "env": {"steps": 0}} for task in range(2)]


@pytest.mark.slow
def test_a_fault_while_restoring_is_named_with_its_traceback():
    with VectorEnv(CounterFactory(fault="forget"), 2, workers=2) as vector:
        states = stands_still(vector)
        with pytest.raises(WorkerError, match=r"worker of green failed: KeyError: 'where was I'") as caught:
            vector.restore(states)
        assert "in restore" in caught.value.hint


@pytest.mark.slow
def test_a_worker_that_does_not_tell_its_state_is_named_and_ended():
    with VectorEnv(CounterFactory(fault="mute"), 2, workers=2, step_timeout=2.0) as vector:
        pids = vector.pids
        stands_still(vector)
        with pytest.raises(WorkerError, match=r"worker of green .* has not answered"):
            vector.state()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_takes_no_state_is_named(number):
    with VectorEnv(CounterFactory(), 2, workers=2, step_timeout=2.0) as vector:
        states = stands_still(vector)
        for state in states:
            state["env"]["ballast"] = "x" * 1_000_000  # more than the socket holds
        os.kill(vector.pids[1], number)
        with pytest.raises(WorkerError, match=r"worker of green .* (died by SIGKILL|has not answered)"):
            vector.restore(states)


@pytest.mark.slow
@pytest.mark.parametrize(("envs", "workers", "own"), [(3, 2, 1), (1, 1, 0)])
def test_who_helps_has_a_share_where_there_is_one_left(envs, workers, own):
    tasks = list(range(envs))
    with VectorEnv(CounterFactory(fault="note"), envs, workers=workers, helping=True) as vector:
        vector.reset(orders(WorkerCommand.RESET, tasks, [2, 5, 9][:envs]))
        assert sum(len(worker.share) for worker in vector._workers) == envs - own
        assert len(vector.take_notes()) == envs
        states = vector.state()
        assert [state["task"] for state in states] == tasks
        vector.restore(states[::-1])
        back = [[task, (2, 5, 9)[task], 0] for task in tasks[::-1]]
        assert vector.observation.tolist() == back
        vector.start(orders(WorkerCommand.STEP, tasks[::-1], [0] * envs), np.zeros((envs, 2), np.float32))
        assert vector.wait().next_observation.tolist() == [[task, goal, 1] for task, goal, _ in back]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_in_this_process_is_named_as_one_in_a_worker(workers):
    with VectorEnv(CounterFactory(fault="raise"), 2, workers=workers, helping=True) as vector:
        vector.reset(orders(WorkerCommand.RESET, [0, 1], [9, 9]))
        with pytest.raises(WorkerError, match=r"of .*green failed: ValueError: the drawer") as caught:
            step_until_fault(vector, (0, 1))
        assert "in step" in caught.value.hint


def step_until_fault(vector: VectorEnv, tasks: tuple[int, ...] = (0, 1)) -> None:
    count = len(tasks)
    vector.reset(orders(WorkerCommand.RESET, [*tasks], [9] * count))
    for _ in range(3):
        vector.start(orders(WorkerCommand.STEP, [*tasks], [0] * count), np.zeros((count, 2), np.float32))
        vector.wait()


@pytest.mark.parametrize(
    ("fault", "words", "hint"),
    [
        ("raise", "failed: ValueError: the drawer", "in step"),
        ("exit", ".* died with exit code 7", "os._exit"),
        pytest.param("hang", ".* has not answered", "", marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_fails_is_named_and_ended(fault, words, hint):
    with VectorEnv(CounterFactory(fault=fault), 2, workers=2, step_timeout=2.0) as vector:
        pids = vector.pids
        with pytest.raises(WorkerError, match=f"worker of green {words}") as caught:
            step_until_fault(vector)
        assert hint in caught.value.hint
        assert "memory" not in caught.value.hint
    assert not any(alive(pid) for pid in pids)


def test_a_hint_fits_the_death():
    assert "memory" in remedy(-signal.SIGKILL)
    assert "memory" not in remedy(-signal.SIGSEGV) + remedy(0) + remedy(3)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("fault", "cause"),
    [("lines", "ValueError: the drawer$"), ("quit", r"it called sys\.exit\(0\)$")],
)
def test_a_fault_is_told_in_its_own_words_and_lines(workers, fault, cause):
    with VectorEnv(CounterFactory(fault=fault), 2, workers=workers) as vector:
        vector.reset(orders(WorkerCommand.RESET, [0, 1], [9, 9]))
        with pytest.raises(WorkerError, match=rf"of .*green failed: {cause}") as caught:
            step_until_fault(vector, (0, 1))
    first, *_, last = caught.value.hint.splitlines()
    assert "toys.py" in first, "no line of ours before the environment's"
    assert last == ("fell off" if fault == "lines" else "it called sys.exit(0)")


def test_a_fault_with_a_note_is_told_by_its_type_and_text():
    error = ValueError("the drawer\nfell off")
    error.add_note("look below the table")
    fault = fault_of(error)
    assert fault.cause == "ValueError: the drawer"
    assert "look below the table" in fault.where


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_whose_numbers_are_not_finite_is_named_once(workers):
    with VectorEnv(CounterFactory(fault="nan"), 2, workers=workers) as vector:
        step_until_fault(vector, (0, 1))
        assert vector.take_notes() == ["the environment of green gave a reward that is nan"]
        step_until_fault(vector, (0, 1))
        assert vector.take_notes() == []
        assert vector.spoilt == ["the environment of green gave a reward that is nan"]


@pytest.mark.slow
def test_workers_leave_signals_to_the_parent_and_one_that_is_killed_is_named():
    with cold(), VectorEnv(CounterFactory(), 2, workers=2) as vector:
        pids = vector.pids
        for _ in range(2):  # while they import, and while they work
            for pid in pids:
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
                    os.kill(pid, number)
            step_until_fault(vector)
        os.kill(pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"worker of green .* died by SIGKILL"):
            step_until_fault(vector)
    assert not any(alive(pid) for pid in pids)


@pytest.mark.slow
def test_workers_end_when_the_parent_is_killed():
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        try:
            with cold():
                vector = VectorEnv(CounterFactory(), 2, workers=2)
            step_until_fault(vector)
            os.write(tell, " ".join(map(str, vector.pids)).encode() + b"\n")
            time.sleep(600)
        finally:
            os._exit(1)
    os.close(tell)
    with os.fdopen(told) as answer:
        pids = [int(pid) for pid in answer.readline().split()]
    assert len(pids) == 2
    assert all(alive(pid) for pid in pids)
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    until(lambda: not any(alive(pid) for pid in pids))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
