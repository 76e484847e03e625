"""login and logout as typed: one code at the terminal, then commands that ask nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.allowing import allow
from tests.commands.conftest import Project
from tests.doubles.code_sshd import CodeSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.doubles.person import type_at_terminal
from tests.needs import needing
from tests.transport.runtime import masters, runtime_folder

pytestmark = pytest.mark.slow  # real servers or processes, a second or more each

CLUSTER = """
[clusters.uni]
host = "node"
root = "{root}"
container = "none"
ssh_config = "{ssh_config}"
"""


@pytest.fixture
def runtime() -> Iterator[Path]:
    with runtime_folder():
        yield Path(os.environ["XDG_RUNTIME_DIR"])


@pytest.fixture
@needing("one-time codes")
def server(project: Project, runtime: Path, tmp_path: Path) -> Iterator[CodeSshd]:
    with closing(CodeSshd(tmp_path / "sshd")) as running:
        settle(project, running, tmp_path)
        yield running


def settle(project: Project, server: LoopbackSshd, tmp_path: Path, *lines: str) -> None:
    toml = project.folder / "clusterkit.toml"
    cluster = CLUSTER.format(root=tmp_path / "root", ssh_config=server.ssh_config)
    toml.write_text(toml.read_text() + cluster + "\n".join(lines))
    allow(project.folder)


def at_terminal(
    project: Project, *words: str, **answers: Callable[[], str]
) -> subprocess.CompletedProcess[str]:
    return type_at_terminal(
        words,
        {text.replace("_", " "): answer for text, answer in answers.items()},
        folder=project.folder,
        environment={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
    )


def test_a_day_with_one_code(project: Project, server: CodeSshd, runtime: Path) -> None:
    done = at_terminal(project, "login", "uni", "--keep", "1h", password=server.codes.next)
    assert done.returncode == 0, done.stdout
    assert (
        "uni (node): logged in; kept until 1h pass without a command, or `clusterkit logout uni`"
        in done.stdout
    )
    for _ in range(2):
        project.run("deploy", "--cluster", "uni")  # no terminal, no code
    assert "already logged in" in project.run("login", "uni").stdout
    assert (server.codes.used, server.accepted_logins()) == (1, 1)
    assert project.run("logout", "uni").stdout == "node: logged out\n"
    assert project.run("logout").stdout == "no login was kept\n"
    project.until(lambda: not masters(runtime))
    error = project.run("deploy", "--cluster", "uni", code=4).stderr
    assert f"{server.user}@node asks for" in error
    assert "there is no terminal" in error
    assert server.accepted_logins() == 1


def test_without_it_a_code_for_every_command(project: Project, server: CodeSshd) -> None:
    for number in (1, 2):
        done = at_terminal(project, "deploy", "--cluster", "uni", password=server.codes.next)
        assert done.returncode == 0, done.stdout
        assert (server.codes.used, server.accepted_logins()) == (number, number)


def test_an_interrupt_at_the_question(project: Project, server: CodeSshd, runtime: Path) -> None:
    done = at_terminal(project, "login", "uni", password=lambda: "\x03")
    assert done.returncode == 130, done.stdout
    assert "Traceback" not in done.stdout
    assert not masters(runtime)
    done = at_terminal(project, "login", "uni", password=server.codes.next)
    assert done.returncode == 0, done.stdout


@pytest.mark.needs("one-time codes")
def test_a_login_through_a_jump_host_outlives_its_terminal(
    project: Project, runtime: Path, tmp_path: Path
) -> None:
    with (
        closing(CodeSshd(tmp_path / "gate", alias="gate")) as gate,
        closing(CodeSshd(tmp_path / "n")) as node,
    ):
        settle(project, node, tmp_path, 'keep_login = "1h"')
        block = node.host_block(lines=["ProxyJump gate"])
        node.ssh_config.write_text(f"{gate.host_block()}\n{block}")
        allow(project.folder)
        codes = iter([gate.codes.next, node.codes.next])
        done = at_terminal(project, "deploy", "--cluster", "uni", password=lambda: next(codes)())
        assert done.returncode == 0, done.stdout
        project.run("deploy", "--cluster", "uni")
        assert (gate.accepted_logins(), node.accepted_logins()) == (1, 1)


def test_wrong_codes_at_the_terminal(project: Project, server: CodeSshd) -> None:
    done = at_terminal(project, "login", "uni", password=lambda: "000000")
    assert done.returncode == 4
    assert "node (127.0.0.1:" in done.stdout
    assert "refuses the login" in done.stdout
    assert "a code works only once and only briefly" in done.stdout


@pytest.fixture
@needing("sshd")
def stranger(project: Project, runtime: Path, tmp_path: Path) -> Iterator[LoopbackSshd]:
    """A server that nobody knows yet."""
    with closing(LoopbackSshd(tmp_path / "sshd")) as running:
        running.known_hosts.unlink()
        settle(project, running, tmp_path)
        yield running


def test_a_new_host_is_shown_and_asked_about(project: Project, stranger: LoopbackSshd) -> None:
    refused = project.run("login", "uni", code=4).stderr
    assert "is not known; ssh says: Host key verification failed" in refused
    answer = {"[fingerprint])?": lambda: "no"}
    assert at_terminal(project, "login", "uni", **answer).returncode == 4
    done = at_terminal(project, "login", "uni", **{"[fingerprint])?": lambda: "yes"})
    assert done.returncode == 0, done.stdout
    assert "SHA256:" in done.stdout
    assert stranger.known_hosts.exists()


def test_a_new_host_is_accepted_on_request(project: Project, stranger: LoopbackSshd) -> None:
    assert "--accept-new" in project.run("login", "uni", code=4).stderr
    done = project.run("login", "uni", "--accept-new")
    assert "SHA256:" in done.stderr
    assert "Accepted" in done.stderr
    project.run("deploy", "--cluster", "uni")
    assert stranger.accepted_logins() == 1


def test_nothing_to_log_in_to(project: Project, runtime: Path) -> None:
    assert "cluster local is this machine" in project.run("login", code=3).stderr
    assert "--keep: " in project.run("login", "--keep", "8", code=3).stderr
    assert project.run("logout", "local").stdout == "no login was kept\n"
