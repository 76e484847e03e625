"""Answers to a login's questions, and logging in with them."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.jump import travel
from clusterkit.transport.questions import Ask, Question
from tests.doubles.dialog_server import DialogServer
from tests.doubles.loopback_sshd import LoopbackSshd


class Answers:
    """Answers questions from a list and remembers them."""

    def __init__(self, *answers: str) -> None:
        self.left, self.asked = list(answers), list[str]()
        self.questions: list[Question] = []
        self.threads: set[int] = set()

    def __call__(self, question: Question) -> list[str]:
        self.threads.add(threading.get_ident())
        self.questions.append(question)
        self.asked += [prompt.text for prompt in question.prompts]
        return [self.left.pop(0) for _ in question.prompts]


def log_in(server: LoopbackSshd | DialogServer, ask: Ask | None = None, config: Path | None = None) -> None:
    with closing(travel(server.alias, ask=ask or Answers(), config=config or server.ssh_config)):
        pass


def refused(
    server: LoopbackSshd | DialogServer, ask: Ask | None = None, config: Path | None = None
) -> TransportError:
    with pytest.raises(TransportError) as caught:
        log_in(server, ask, config)
    return caught.value
