from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest

from tests.trainer.toys import CounterFactory
from trainer.envs.faults import OverdueError, clear_alarm, set_alarm
from trainer.envs.schedule import Orders, WorkerCommand
from trainer.envs.vector import VectorEnv
from trainer.errors import WorkerError
from trainer.preemption import EXIT_INTERRUPTED, EXIT_REQUEUE, StoppedError, StopSignals


@pytest.fixture
def free_alarm() -> Iterator[None]:
    """As in a process without pytest's own limit for a test."""
    left = signal.setitimer(signal.ITIMER_REAL, 0.0)
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, before)
    signal.setitimer(signal.ITIMER_REAL, *left)


def orders(command: WorkerCommand) -> Orders:
    return Orders(np.full(2, command, np.int8), np.ones(2, np.int32), np.full(2, 9, np.int32))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_of_this_process_that_hangs_is_named(workers: int, free_alarm) -> None:
    words = r"environment of green in this process has not answered for 0 s"
    hanging = CounterFactory(fault="hang")
    with VectorEnv(hanging, 2, workers=workers, helping=True, step_timeout=0.3) as vector:
        vector.reset(orders(WorkerCommand.RESET))
        for number in range(3):
            vector.start(orders(WorkerCommand.STEP), np.zeros((2, 2), np.float32))
            with pytest.raises(WorkerError, match=words) if number == 2 else nullcontext():
                vector.wait()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


STEPPER = """
import numpy as np
from tests.trainer.test_alarm import orders
from tests.trainer.toys import CounterFactory
from trainer.envs.schedule import WorkerCommand
from trainer.envs.vector import VectorEnv
if __name__ == "__main__":
    with VectorEnv(CounterFactory(fault="slow"), 2, workers={workers}, step_timeout=4.0) as vector:
        vector.reset(orders(WorkerCommand.RESET))
        for number in range(4):
            print(number, flush=True)
            vector.start(orders(WorkerCommand.STEP), np.zeros((2, 2), np.float32))
            vector.wait()
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_environments_of_a_job_that_was_suspended_are_not_overdue(workers: int) -> None:
    argv = [sys.executable, "-c", STEPPER.format(workers=workers)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "2\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGSTOP)
        time.sleep(8.0)  # twice what a step may take
        os.killpg(process.pid, signal.SIGCONT)
        assert process.stdout.read() == "3\n"
    assert process.returncode == 0


def test_it_rings_until_it_is_heard(free_alarm) -> None:
    heard = 0
    assert set_alarm(0.2)  # long enough to be called off in time on a busy machine, too
    while heard < 2:
        try:
            signal.pause()
        except OverdueError:
            heard += 1
    clear_alarm()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_who_uses_the_alarm_keeps_it(free_alarm) -> None:
    signal.signal(signal.SIGALRM, lambda *_: None)
    assert not set_alarm(60.0)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_only_the_main_thread_can_be_interrupted(free_alarm) -> None:
    with ThreadPoolExecutor(1) as threads:
        assert not threads.submit(set_alarm, 60.0).result()


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGUSR1, EXIT_REQUEUE),
        (signal.SIGUSR2, EXIT_REQUEUE),
        (signal.SIGTERM, EXIT_REQUEUE),
        (signal.SIGINT, EXIT_INTERRUPTED),
    ],
)
def test_signals_are_noted_not_obeyed(number, code):
    with StopSignals() as stop:
        assert not stop
        os.kill(os.getpid(), number)
        assert stop
        assert stop.received == number
        assert stop.exit_code == code


def test_the_first_signal_counts():
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGUSR1)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.received == signal.SIGUSR1


def test_what_an_outer_one_has_received_is_not_lost():
    with StopSignals():
        os.kill(os.getpid(), signal.SIGTERM)
        with StopSignals() as inner:
            assert inner.received == signal.SIGTERM


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


def test_who_presses_ctrl_c_twice_is_not_kept_waiting():
    with StopSignals():
        interrupt()
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_the_handlers_before_come_back():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_signal_at_once_gets_past_code_that_catches_every_exception():
    """An environment that was being reset in this process was blamed for it."""
    with StopSignals() as stop:
        with pytest.raises(StoppedError), stop.at_once(), contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.exit_code == EXIT_REQUEUE
