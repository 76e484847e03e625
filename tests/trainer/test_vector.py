import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.trainer.toys import CounterFactory
from trainer.envs.metaworld import MetaworldFactory
from trainer.envs.schedule import Command, Orders, Schedule
from trainer.envs.vector import VectorEnv
from trainer.errors import WorkerError


def orders(command: Command, task: list[int], goal: list[int]) -> Orders:
    return Orders(np.full(len(task), command, np.int8), np.array(task, np.int32), np.array(goal, np.int32))


def play(factory, num_envs: int, workers: int, steps: int, episode_steps: int, helping=False) -> np.ndarray:
    """Everything that comes out of a scheduled run, in one array."""
    rng = np.random.default_rng(0)
    schedule = Schedule(num_envs, len(factory.tasks), episode_steps, 50, rng, stagger=True)
    actions = np.random.default_rng(1)
    rows = []
    with VectorEnv(factory, num_envs, workers=workers, helping=helping) as vector:
        vector.reset(schedule.first())
        for _ in range(steps):
            shown = vector.observation
            action = actions.uniform(-1, 1, (num_envs, factory.action_dim)).astype(np.float32)
            vector.start(schedule.advance(), action)
            reward, success, led_to, *_ = vector.wait()
            rows.append(np.concatenate([shown, led_to, reward[:, None], success[:, None]], axis=1))
    return np.array(rows)


@pytest.mark.parametrize("workers", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_results_do_not_depend_on_the_number_of_workers(workers):
    factory = MetaworldFactory(("reach-v3", "drawer-close-v3"))
    # five environments over two tasks: one of them moves, from worker-owned to worker-owned environment
    alone = play(factory, 5, 0, 45, 10)
    assert np.array_equal(play(factory, 5, workers, 45, 10, helping=workers == 2), alone)
    assert alone.dtype == np.float32
    assert len(np.unique(alone[:, 0, 36:39], axis=0)) > 2  # several goals were played


@pytest.mark.parametrize("workers", [0, 2])
def test_what_an_action_led_to_is_kept_where_the_episode_is_cut(workers):
    action = np.ones((3, 2), np.float32)
    with VectorEnv(CounterFactory(), 3, workers=workers) as vector:
        vector.reset(orders(Command.RESET, [0, 1, 2], [2, 5, 5]))
        vector.start(orders(Command.STEP, [0, 0, 0], [0, 0, 0]), action)
        vector.wait()
        vector.start(orders(Command.STEP_THEN_RESET, [2, 1, 0], [8, 9, 10]), action)
        outcome = vector.wait()
        assert outcome.next_observation.tolist() == [[0, 2, 2], [1, 5, 2], [2, 5, 2]]
        assert outcome.reward.tolist() == [4, 4, 4]
        assert outcome.success.tolist() == [True, False, False]
        assert vector.observation.tolist() == [[2, 8, 0], [1, 9, 0], [0, 10, 0]]


def test_an_idle_environment_stands_still():
    with VectorEnv(CounterFactory(), 2) as vector:
        vector.reset(orders(Command.RESET, [0, 1], [5, 5]))
        mixed = orders(Command.STEP, [0, 1], [0, 0])
        mixed.command[1] = Command.IDLE
        vector.start(mixed, np.zeros((2, 2), np.float32))
        vector.wait()
        assert vector.observation.tolist() == [[0, 5, 1], [1, 5, 0]]


@pytest.mark.parametrize("workers", [0, 2])
def test_what_an_environment_has_to_say_is_passed_on_once(workers):
    with VectorEnv(CounterFactory(fault="note"), 4, workers=workers) as vector:
        vector.reset(orders(Command.RESET, [0, 0, 2, 0], [9, 9, 9, 9]))
        assert [note.split() for note in vector.take_notes()] == [
            ["task", "0", "squeaks"],
            ["task", "2", "squeaks"],
        ]
        step_until_fault(vector, (1, 0, 2, 0))  # makes one environment more
        assert [note.split() for note in vector.take_notes()] == [["task", "1", "squeaks"]]
        assert vector.take_notes() == []


class Interrupted:
    """Everything that comes out of a scheduled run, before and after a stop in the middle."""

    def __init__(self, factory, num_envs: int, episode_steps: int) -> None:
        self._factory, self._num_envs, self._episode_steps = factory, num_envs, episode_steps
        self._rng, self._actions = np.random.default_rng(0), np.random.default_rng(1)
        self._schedule = self._planned(None)
        self._states = None
        self.rows: list[np.ndarray] = []

    def play(self, steps: int, workers: int) -> None:
        with VectorEnv(self._factory, self._num_envs, workers=workers, helping=steps > 20) as vector:
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
def test_a_run_goes_on_to_the_bit_with_other_workers():
    factory = MetaworldFactory(("push-v3", "drawer-close-v3"))
    whole, stopped = Interrupted(factory, 5, 40), Interrupted(factory, 5, 40)
    whole.play(150, workers=0)
    for steps, workers in ((17, 2), (30, 3), (1, 0), (102, 1)):
        stopped.play(steps, workers)
    assert np.array_equal(stopped.rows, whole.rows)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_tells_where_each_environment_is(workers):
    with VectorEnv(CounterFactory(), 3, workers=workers) as vector:
        vector.reset(orders(Command.RESET, [0, 1, 2], [2, 5, 9]))
        vector.start(orders(Command.STEP, [0, 1, 2], [0, 0, 0]), np.zeros((3, 2), np.float32))
        vector.wait()
        states = vector.state()
    assert states == [
        {"task": task, "goal": goal, "observation": [task, goal, 1], "env": {"steps": 1}}
        for task, goal in enumerate((2, 5, 9))
    ]
    with VectorEnv(CounterFactory(), 3, workers=workers) as vector:
        vector.restore(states[::-1])
        assert vector.observation.tolist() == [[2, 9, 1], [1, 5, 1], [0, 2, 1]]
        vector.start(orders(Command.STEP, [2, 1, 0], [0, 0, 0]), np.zeros((3, 2), np.float32))
        outcome = vector.wait()
        assert outcome.next_observation.tolist() == [[2, 9, 2], [1, 5, 2], [0, 2, 2]]
        assert outcome.success.tolist() == [False, False, True]


def test_states_of_any_size_pass_through_the_socket():
    with VectorEnv(CounterFactory(), 3, workers=2) as vector:
        vector.reset(orders(Command.RESET, [0, 1, 2], [2, 5, 9]))
        states = vector.state()
        for state in states:
            state["env"] |= {"steps": 4, "ballast": "x" * 1_000_000}
        vector.restore(states)
        assert [state["env"]["steps"] for state in vector.state()] == [4, 4, 4]


def stands_still(vector: VectorEnv) -> list[dict]:
    vector.reset(orders(Command.RESET, [0, 1, 2], [9, 9, 9]))
    return [{"task": task, "goal": 9, "observation": [0, 0, 0], "env": {"steps": 0}} for task in range(3)]


def test_a_fault_while_restoring_is_named_with_its_traceback():
    with VectorEnv(CounterFactory(fault="forget"), 3, workers=3) as vector:
        states = stands_still(vector)
        with pytest.raises(WorkerError, match=r"worker of green failed: KeyError: 'where was I'") as caught:
            vector.restore(states)
        assert "in restore" in caught.value.hint


def test_a_worker_that_does_not_tell_its_state_is_named_and_ended():
    with VectorEnv(CounterFactory(fault="mute"), 3, workers=3, step_timeout=2.0) as vector:
        pids = vector.pids
        stands_still(vector)
        with pytest.raises(WorkerError, match=r"worker of green .* has not answered"):
            vector.state()
    assert not any(alive(pid) for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_takes_no_state_is_named(number):
    with VectorEnv(CounterFactory(), 3, workers=3, step_timeout=2.0) as vector:
        states = stands_still(vector)
        for state in states:
            state["env"]["ballast"] = "x" * 1_000_000  # more than the socket holds
        os.kill(vector.pids[2], number)
        with pytest.raises(WorkerError, match=r"worker of blue .* (died by SIGKILL|has not answered)"):
            vector.restore(states)


def test_who_helps_has_a_share_where_there_is_one_left():
    for workers, own in ((1, 1), (2, 1), (3, 0)):
        with VectorEnv(CounterFactory(fault="note"), 3, workers=workers, helping=True) as vector:
            vector.reset(orders(Command.RESET, [0, 1, 2], [2, 5, 9]))
            assert sum(len(worker.share) for worker in vector._workers) == 3 - own
            assert len(vector.take_notes()) == 3
            states = vector.state()
            assert [state["task"] for state in states] == [0, 1, 2]
            vector.restore(states[::-1])
            assert vector.observation.tolist() == [[2, 9, 0], [1, 5, 0], [0, 2, 0]]
            vector.start(orders(Command.STEP, [2, 1, 0], [0, 0, 0]), np.zeros((3, 2), np.float32))
            assert vector.wait().next_observation.tolist() == [[2, 9, 1], [1, 5, 1], [0, 2, 1]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_fault_in_this_process_is_named_as_one_in_a_worker(workers):
    with VectorEnv(CounterFactory(fault="raise"), 2, workers=workers, helping=True) as vector:
        vector.reset(orders(Command.RESET, [0, 1], [9, 9]))
        with pytest.raises(WorkerError, match=r"of .*green failed: ValueError: the drawer") as caught:
            step_until_fault(vector, (0, 1))
        assert "in step" in caught.value.hint


def step_until_fault(vector: VectorEnv, tasks: tuple[int, ...] = (0, 1, 2)) -> None:
    count = len(tasks)
    vector.reset(orders(Command.RESET, [*tasks], [9] * count))
    for _ in range(3):
        vector.start(orders(Command.STEP, [*tasks], [0] * count), np.zeros((count, 2), np.float32))
        vector.wait()


def test_a_failing_environment_is_named_with_its_traceback():
    with VectorEnv(CounterFactory(fault="raise"), 3, workers=3) as vector:
        with pytest.raises(WorkerError, match=r"worker of green failed: ValueError: the drawer") as caught:
            step_until_fault(vector)
        assert "in step" in caught.value.hint


def test_a_worker_that_exits_is_named():
    died = pytest.raises(WorkerError, match=r"worker of green .* died with exit code 7")
    with VectorEnv(CounterFactory(fault="exit"), 3, workers=3) as vector, died:
        step_until_fault(vector)


def test_a_worker_that_is_killed_is_named():
    with VectorEnv(CounterFactory(), 3, workers=2) as vector:
        step_until_fault(vector)
        os.kill(vector.pids[1], signal.SIGKILL)
        with pytest.raises(WorkerError, match=r"worker of green .* died by SIGKILL"):
            step_until_fault(vector)


def test_a_worker_that_hangs_is_named_and_ended():
    with VectorEnv(CounterFactory(fault="hang"), 3, workers=3, step_timeout=2.0) as vector:
        pids = vector.pids
        with pytest.raises(WorkerError, match=r"worker of green .* has not answered"):
            step_until_fault(vector)
    assert not any(alive(pid) for pid in pids)


def test_workers_leave_signals_to_the_parent():
    with VectorEnv(CounterFactory(), 3, workers=2) as vector:
        pids = vector.pids
        step_until_fault(vector)
        for pid in pids:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
                os.kill(pid, number)
        step_until_fault(vector)
    assert not any(alive(pid) for pid in pids)


def test_a_signal_during_the_start_does_not_kill_a_worker():
    with VectorEnv(CounterFactory(), 3, workers=2) as vector:
        for pid in vector.pids:  # they are still importing
            os.kill(pid, signal.SIGUSR1)
            os.kill(pid, signal.SIGTERM)
        step_until_fault(vector)


def test_workers_end_when_the_parent_is_killed():
    script = (
        "import sys, time\n"
        "from tests.trainer.test_vector import CounterFactory, VectorEnv, step_until_fault\n"
        "if __name__ == '__main__':\n"
        "    vector = VectorEnv(CounterFactory(), 3, workers=2)\n"
        "    step_until_fault(vector)\n"
        "    print(*vector.pids, flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        assert all(alive(pid) for pid in pids)
        parent.kill()
    deadline = time.monotonic() + 120
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
