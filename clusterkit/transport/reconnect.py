"""Logging in again after a connection has died: patient with the network, and without a question."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from clusterkit.errors import TransportError
from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.link import Link
from clusterkit.transport.questions import Ask, Question, TerminalQuestion

PAUSES = (0.0, 1.0, 3.0, 9.0, 27.0)
"""Seconds before each try: long enough for a Wi-Fi to change, or for a login node to come back."""
GIVE_UP_SECONDS = 45.0
"""No further try after that; a host that swallows everything takes its time with each."""


def log_in_again(log_in: Callable[[Ask], Link], *, where: str, why: str | None, tell: Ask) -> Link:
    """A new connection in the place of a dead one.

    Args:
        log_in: logs in, with what answers its questions.
        where: the machine's name for messages.
        why: the last connection died.
        tell: is told of the new login; asked nothing.

    Raises:
        TransportError: the host cannot be reached in time, refuses the login, or asks something.
    """
    died = f"the connection to {where} died ({why or 'the server or the network ended it'})"
    problem: TransportError | None = None
    began = time.monotonic()
    for pause in PAUSES:
        if time.monotonic() - began + pause > GIVE_UP_SECONDS:
            break
        time.sleep(pause)
        try:
            link = log_in(_refuse)
        except UnreachableError as error:
            problem = error
        except TransportError as error:
            problem = error
            break
        else:
            tell(Question(where, "", f"{died}; logged in again.", ()))
            return link
    raise TransportError(
        f"{died}, and logging in again failed: {problem.cause if problem else 'none was tried'}",
        hint="run the same command again; nothing is done twice",
    ) from problem


def _refuse(question: Question) -> Sequence[str]:
    if question.prompts and not isinstance(question, TerminalQuestion):
        raise TransportError(f"{question.where} asks for {question.wanted!r}")
    return ()
