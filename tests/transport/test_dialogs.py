"""Passwords, one-time codes and pushes: every dialog a server may begin; test_codes.py has a real sshd."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.questions import Question, ask_on_terminal
from tests.doubles.dialog_server import Ask as Asked
from tests.doubles.dialog_server import DialogServer, Factor
from tests.transport.answers import CODE, Answers, log_in, refused


def test_a_key_and_then_a_code(serve: Callable[..., DialogServer]) -> None:
    server = serve(Factor("publickey"), Factor("keyboard-interactive", [CODE]))
    ask = Answers("123456")
    log_in(server, ask)
    assert server.record.attempts == ["publickey good", "keyboard-interactive good"]
    assert ask.questions[0].where == "me@asks"
    assert ask.threads == {threading.get_ident()}


def test_password_and_code_in_two_requests(serve: Callable[..., DialogServer]) -> None:
    password = Asked((("Password: ", False),), ("secret",))
    log_in(serve(Factor("keyboard-interactive", [password, CODE])), Answers("secret", "123456"))


def test_two_prompts_in_one_request_and_a_push_without_any(serve: Callable[..., DialogServer]) -> None:
    both = Asked((("Password: ", False), ("Name: ", True)), ("secret", "me"), title="Login")
    push = Asked((), (), instructions="Approve on your phone")
    ask = Answers("secret", "me")
    log_in(serve(Factor("keyboard-interactive", [both, push])), ask)
    assert [prompt.echo for prompt in ask.questions[0].prompts] == [False, True]
    assert [question.instructions for question in ask.questions] == ["", "Approve on your phone"]


def test_a_password_alone(serve: Callable[..., DialogServer]) -> None:
    ask = Answers("typo", "secret")
    log_in(serve(Factor("password", password="secret")), ask)
    assert ask.asked == ["Password: ", "Password: "]


def test_a_second_try_after_a_wrong_code(serve: Callable[..., DialogServer]) -> None:
    log_in(serve(Factor("publickey"), Factor("keyboard-interactive", [CODE])), Answers("000000", "123456"))


def test_three_wrong_codes_and_we_stop(serve: Callable[..., DialogServer]) -> None:
    server = serve(
        Factor("publickey"), Factor("keyboard-interactive", [CODE]), banner="NOTICE: maintenance at 6"
    )
    ask = Answers("1", "2", "3", "123456")
    error = refused(server, ask)
    assert ask.left == ["123456"]
    assert server.record.attempts[1:] == ["keyboard-interactive bad"] * 3
    assert "NOTICE: maintenance at 6" in error.cause
    assert error.hint
    assert error.hint.startswith("stopped after 3 wrong answers")
    assert "1, 2" not in error.cause


class Interrupted(BaseException):
    """Stands for KeyboardInterrupt, which pytest would take for its own."""


@pytest.mark.parametrize("kind", [Interrupted, TransportError])
def test_an_interrupted_question_ends_the_login(
    serve: Callable[..., DialogServer], kind: type[BaseException]
) -> None:
    def interrupt(question: Question) -> list[str]:
        raise kind("stop")

    server = serve(Factor("publickey"), Factor("keyboard-interactive", [CODE]))
    with pytest.raises(kind, match="stop"):
        log_in(server, interrupt)
    assert server.record.logins == 0


def test_without_a_terminal_nobody_is_asked(
    serve: Callable[..., DialogServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(Factor("publickey"), Factor("keyboard-interactive", [CODE]))
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        error = refused(server, ask_on_terminal)
    assert error.cause == "me@asks asks for 'One-time code', but there is no terminal"
