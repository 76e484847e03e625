"""Answers to a login's questions, and logging in with them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.connection import Connection
from clusterkit.transport.factory import dial
from clusterkit.transport.questions import Ask, Question, TerminalQuestion, ask_on_terminal
from clusterkit.transport.resolve import resolve
from tests.doubles.dialog_server import Ask as Asked
from tests.doubles.dialog_server import DialogServer
from tests.doubles.loopback_sshd import LoopbackSshd

CODE = Asked((("One-time code: ", False),), ("123456",))


class Answers:
    """Answers questions from a list and remembers them."""

    def __init__(self, *answers: str) -> None:
        self.left, self.asked = list(answers), list[str]()
        self.questions: list[Question] = []
        self.threads: set[int] = set()

    def __call__(self, question: Question) -> list[str]:
        self.threads.add(threading.get_ident())
        if isinstance(question, TerminalQuestion):
            return []  # there is none
        self.questions.append(question)
        self.asked += [prompt.text for prompt in question.prompts]
        return [self.left.pop(0) for _ in question.prompts]


def connection(
    server: LoopbackSshd | DialogServer, ask: Ask = ask_on_terminal, config: Path | None = None
) -> Connection:
    """A connection over paramiko."""
    host = resolve(server.alias, config=config or server.ssh_config)
    return Connection.open_to(host, dial(host), ask=ask)


def log_in(server: LoopbackSshd | DialogServer, ask: Ask | None = None, config: Path | None = None) -> None:
    with closing(connection(server, ask or Answers(), config)):
        pass


def refused(
    server: LoopbackSshd | DialogServer, ask: Ask | None = None, config: Path | None = None
) -> TransportError:
    with pytest.raises(TransportError) as caught:
        log_in(server, ask, config)
    return caught.value
