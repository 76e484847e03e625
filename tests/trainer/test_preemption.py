import contextlib
import os
import signal

import pytest

from trainer.preemption import EXIT_INTERRUPTED, EXIT_REQUEUE, StoppedError, StopSignals


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
