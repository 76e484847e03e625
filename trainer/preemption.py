"""Signals that ask the run to stop: noted at once, obeyed at the end of the vector step."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_REQUEUE = 85
"""Checkpointed after a signal from the scheduler; wants to go on in another attempt."""
EXIT_INTERRUPTED = 130
"""Checkpointed after Ctrl-C."""

_SCHEDULERS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)


class StoppedError(BaseException):
    """A signal came within `StopSignals.at_once`; no `Exception`, which environments' callers catch."""


class StopSignals:
    """Collects SIGUSR1, SIGUSR2, SIGTERM and SIGINT while it is entered, in the main thread.

    Entered within another one it has received what that one has.

    A second SIGINT raises KeyboardInterrupt at once, for someone who does not want to wait.

    Attributes:
        received: the first signal, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}
        self._at_once = False

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within, a signal ends what is waited for.

        Raises:
            StoppedError: a signal has been received, maybe before.
        """
        try:
            self._at_once = True
            if self.received is not None:
                raise StoppedError
            yield
        finally:
            self._at_once = False

    @property
    def exit_code(self) -> int:
        """What the process ends with after the signal received."""
        return EXIT_INTERRUPTED if self.received == signal.SIGINT else EXIT_REQUEUE

    def take(self, number: int) -> None:
        """Takes over a signal that another process of the run has received."""
        if self.received is None:
            self.received = signal.Signals(number)

    def __bool__(self) -> bool:
        return self.received is not None

    def __enter__(self) -> StopSignals:
        for number in (*_SCHEDULERS, signal.SIGINT):
            self._before[number] = signal.signal(number, self._note)
            other = getattr(self._before[number], "__self__", None)
            if isinstance(other, StopSignals) and other.received is not None:
                self.take(other.received)  # which nobody will look at before this one is left
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.take(number)
        if self._at_once:
            raise StoppedError
