"""Passwords, one-time codes and pushes: every dialog a server may begin, and one real second factor."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.factory import connect
from clusterkit.transport.questions import Question, ask_on_terminal
from tests.doubles.dialog_server import Ask as Asked
from tests.doubles.dialog_server import DialogServer, Factor
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.transport.answers import Answers, log_in, refused

CODE = Asked((("One-time code: ", False),), ("123456",))


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., DialogServer]]:
    with ExitStack() as stack:

        def start(*factors: Factor, banner: str = "") -> DialogServer:
            return stack.enter_context(closing(DialogServer(tmp_path / "server", factors, banner=banner)))

        yield start


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


# real sshd with PAM --------------------------------------------------------------------------

CHECK = """#!/bin/sh
# pam_exec's expose_authtok: the answer comes on standard input. Each code works once.
code=$(tr -d '\\000\\r\\n')
grep -qx "$code" "{folder}/codes" || exit 1
sed -i "/^$code$/d" "{folder}/codes"
"""
PAM = """auth required pam_exec.so expose_authtok quiet {folder}/check
auth required pam_permit.so
account required pam_permit.so
session required pam_permit.so
"""
IN_PRIVATE = 'mount -t tmpfs pam /etc/pam.d && cp "$0" /etc/pam.d/sshd && exec "$@"'


@pytest.fixture
@needing("root", "unshare", "sshd")
def pam_sshd(tmp_path: Path) -> Iterator[LoopbackSshd]:
    """A real sshd that wants a key and a code; its /etc/pam.d is its own, the machine's is untouched."""
    check = tmp_path / "check"
    check.write_text(CHECK.format(folder=tmp_path))
    check.chmod(0o755)
    (tmp_path / "codes").write_text("111111\n222222\n")
    (tmp_path / "pam").write_text(PAM.format(folder=tmp_path))
    lines = (
        "UsePAM yes",
        "KbdInteractiveAuthentication yes",
        "AuthenticationMethods publickey,keyboard-interactive:pam",
    )
    launcher = [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        IN_PRIVATE,
        str(tmp_path / "pam"),
    ]
    with closing(LoopbackSshd(tmp_path / "sshd", lines=lines, launcher=launcher)) as server:
        yield server


@pytest.mark.slow
def test_a_real_second_factor(pam_sshd: LoopbackSshd) -> None:
    ask = Answers("111111")
    with closing(connect(pam_sshd.alias, ssh_config=pam_sshd.ssh_config, ask=ask)) as transport:
        assert transport.run(["echo", "in"]).text == "in\n"
    assert ask.asked == ["Password: "]
    ask = Answers("111111", "222222")  # the first code is used up by now
    log_in(pam_sshd, ask)
    assert ask.left == []
    error = refused(pam_sshd, Answers("1", "2", "3"))
    assert error.hint
    assert error.hint.startswith("stopped after 3 wrong answers")
