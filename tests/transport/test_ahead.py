"""A login that goes on while its command works: its questions wait, and nothing of it is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport import ahead
from clusterkit.transport.ahead import LoginAhead
from clusterkit.transport.factory import connect
from tests.doubles.code_sshd import CodeSshd
from tests.doubles.dialog_server import DialogServer, Factor
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.transport.answers import CODE, Answers
from tests.waiting import until

Server = LoopbackSshd | DialogServer | CodeSshd


def begin(server: Server, ask: Answers) -> LoginAhead:
    return LoginAhead(lambda answer: connect(server.alias, ssh_config=server.ssh_config, ask=answer), ask)


def test_it_is_there_before_it_is_asked_for(sshd: LoopbackSshd) -> None:
    logins = sshd.accepted_logins()
    with begin(sshd, Answers()) as login:
        until(lambda: sshd.accepted_logins() == logins + 1)
        assert login.transport().run(["echo", "here"]).text == "here\n"
    with pytest.raises(TransportError):
        login.transport().run(["true"])  # closed with its context


def test_questions_wait_and_come_in_the_thread_of_the_command(serve: Callable[..., DialogServer]) -> None:
    server = serve(Factor("publickey"), Factor("keyboard-interactive", [CODE]))
    ask = Answers("123456")
    with begin(server, ask) as login:
        until(lambda: "publickey good" in server.record.attempts)
        assert ask.questions == []
        login.transport()
    assert [one for one in server.record.attempts if "good" in one] == [
        "publickey good",
        "keyboard-interactive good",
    ]
    assert ask.threads == {threading.get_ident()}


def test_a_question_that_waited_too_long_begins_anew(
    serve: Callable[..., DialogServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ahead, "_PATIENCE_SECONDS", 0.2)
    server = serve(Factor("keyboard-interactive", [CODE]))
    ask = Answers("123456")
    with begin(server, ask) as login:
        until(lambda: not login._thread.is_alive())
        login.transport()
    assert ask.left == []  # asked once, for the login that counts


def test_a_command_that_fails_before_asks_nothing_and_leaves_no_login(
    serve: Callable[..., DialogServer], sshd: LoopbackSshd
) -> None:
    ask = Answers()
    server = serve(Factor("keyboard-interactive", [CODE]))
    with pytest.raises(KeyError), begin(server, ask) as login:
        raise KeyError
    assert ask.questions == []
    assert not login._thread.is_alive()
    with pytest.raises(KeyError), begin(sshd, ask) as login:
        raise KeyError
    assert not login._thread.is_alive()
    assert not login.transport()._link.alive  # type: ignore[attr-defined]


def test_a_refusal_and_an_interrupt_reach_the_command(
    serve: Callable[..., DialogServer], tmp_path: Path
) -> None:
    server = serve(Factor("keyboard-interactive", [CODE]))

    def ctrl_c(_question: object) -> list[str]:
        raise KeyboardInterrupt

    with begin(server, ctrl_c) as login, pytest.raises(KeyboardInterrupt):  # type: ignore[arg-type]
        login.transport()
    with (
        begin(server, Answers("1", "2", "3")) as login,
        pytest.raises(TransportError, match="refuses the login"),
    ):
        login.transport()


@pytest.mark.needs("sshd")
def test_a_second_login_after_a_loss_does_not_wait_for_anybody(tmp_path: Path) -> None:
    with closing(LoopbackSshd(tmp_path / "node")) as server, begin(server, Answers()) as login:
        far = login.transport()
        far.run(["true"])
        server.drop_connections()
        time.sleep(0.2)
        far.write(str(tmp_path / "file"), b"after")
    assert (tmp_path / "file").read_bytes() == b"after"
