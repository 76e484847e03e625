"""A login that goes on while its command does other work: a server takes its time, as hashing a tree does.

The questions of a login still come in the command's own thread, when it asks for the connection; nobody is
asked for a code before the command has found everything on this machine in order.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from types import TracebackType

from clusterkit.transport.base import Transport
from clusterkit.transport.questions import Ask, Question

_PATIENCE_SECONDS = 15.0
"""How long a question waits for the command. A server waits longer, and is bound to count those who never
answer (LoginGraceTime, PerSourcePenalties)."""
_LEAVE_SECONDS = 1.0
"""How long a command that fails waits for its login's end."""


class _NobodyCameError(Exception):
    """A question waited in vain."""


class LoginAhead:
    """Logs in from the constructor on; `transport` waits for it. Use as a context manager."""

    def __init__(self, log_in: Callable[[Ask], Transport], ask: Ask) -> None:
        """Begin.

        Args:
            log_in: logs in, in a thread of its own, with the answers of what it is given.
            ask: answers, in the thread that calls `transport`.
        """
        self._log_in, self._ask = log_in, ask
        self._questions: queue.Queue[Question | None] = queue.Queue()
        self._answers: queue.Queue[Sequence[str] | None] = queue.Queue()
        self._served = threading.Event()
        self._left = threading.Event()
        self._outcome: Transport | BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="clusterkit-login", daemon=True)
        self._thread.start()

    def __enter__(self) -> LoginAhead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()
        self._thread.join(_LEAVE_SECONDS)  # the end of Python must not meet it half way
        self._close()

    def transport(self) -> Transport:
        """Returns the open transport; closed at the end of the context.

        Raises:
            TransportError: the host cannot be reached or trusted, or refuses the login.
        """
        self._served.set()
        while (question := self._questions.get()) is not None:
            try:
                given = self._ask(question)
                if question.prompts:
                    self._answers.put(given)
            except BaseException:
                self._leave()
                raise
        self._questions.put(None)  # for whoever asks for it again
        if isinstance(self._outcome, _NobodyCameError):
            self._outcome = self._log_in(self._ask)
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome

    def _close(self) -> None:
        if self._outcome is not None and not isinstance(self._outcome, BaseException):
            self._outcome.close()

    def _leave(self) -> None:
        self._left.set()
        self._served.set()
        self._answers.put(None)

    def _work(self) -> None:
        try:
            self._outcome = self._log_in(self._wait_for_answer)
        except BaseException as error:  # raised in the command's thread
            self._outcome = error
        self._questions.put(None)
        if self._left.is_set():
            self._close()

    def _wait_for_answer(self, question: Question) -> Sequence[str]:
        if threading.current_thread() is not self._thread:
            return self._ask(question)  # a later login of the same transport, after a lost connection
        if not question.prompts:
            self._questions.put(question)  # only something to tell; it does not wait for an answer
            return []
        if not self._served.wait(_PATIENCE_SECONDS) or self._left.is_set():
            raise _NobodyCameError
        self._questions.put(question)
        given = self._answers.get()
        if given is None:
            raise _NobodyCameError
        return given
