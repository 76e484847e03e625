"""A real second factor, where each code works once: logging in, and clear words for what goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from clusterkit.transport.factory import connect
from tests.doubles.code_sshd import CodeSshd, hotp
from tests.transport.answers import Answers, log_in, refused

pytestmark = pytest.mark.needs("one-time codes")

STOPPED = "stopped after 3 wrong answers"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., CodeSshd]]:
    with ExitStack() as stack:

        def start(alias: str = "node", **more: str) -> CodeSshd:
            return stack.enter_context(closing(CodeSshd(tmp_path / alias, alias=alias, **more)))

        yield start


def test_a_key_and_a_code(serve: Callable[..., CodeSshd]) -> None:
    server = serve()
    ask = Answers(server.codes.next())
    with closing(connect(server.alias, ssh_config=server.ssh_config, ask=ask)) as far:
        assert far.run(["echo", "in"]).text == "in\n"
    assert ask.asked == [f"One-time password (OATH) for `{server.user}': "]
    assert server.accepted_logins() == 1


@pytest.mark.slow
def test_a_code_works_once(serve: Callable[..., CodeSshd]) -> None:
    server = serve()
    code = server.codes.next()
    log_in(server, Answers(code))
    error = refused(server, Answers(code, code, code))
    assert f"refuses the login of {server.user}; it accepted {server.key} SHA256:" in error.cause
    assert error.cause.endswith("; tried keyboard-interactive (3 times); it accepts keyboard-interactive")
    assert code not in error.cause
    assert error.hint
    assert error.hint.startswith(STOPPED)
    log_in(server, Answers(server.codes.next()))


def test_a_code_that_has_expired(serve: Callable[..., CodeSshd]) -> None:
    server = serve(kind="HOTP/T30/6")
    now = int(time.time()) // 30
    error = refused(server, Answers(*[hotp(now - 40)] * 3))
    assert error.hint
    assert error.hint.startswith(STOPPED)
    assert "a code works only once and only briefly" in error.hint
    log_in(server, Answers(hotp(int(time.time()) // 30)))
