"""A host nobody knows yet: its fingerprint is shown, a person decides, and OpenSSH knows it from then on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterkit.transport.questions import HostKeyQuestion, accepting_new_hosts
from tests.doubles.loopback_sshd import LoopbackSshd, make_key
from tests.transport.answers import Answers, log_in, refused


def fingerprint(key: Path) -> str:
    shown = subprocess.run(["ssh-keygen", "-l", "-f", key], capture_output=True, text=True, check=True)
    return shown.stdout.split()[1]


@pytest.fixture
def known(tmp_path: Path) -> Path:
    """The user's own known_hosts, in a folder that does not exist yet."""
    return tmp_path / "home" / "known_hosts"


@pytest.fixture
def config(sshd: LoopbackSshd, tmp_path: Path, known: Path) -> Callable[..., Path]:
    def write(*lines: str) -> Path:
        path = tmp_path / "ssh_config"
        path.write_text(sshd.host_block(lines=[f"UserKnownHostsFile {known}", *lines]))
        return path

    return write


def ssh(config: Path) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", str(config), "-o", "StrictHostKeyChecking=yes", "node", "echo", "in"]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("hashing", ["yes", "no"])
def test_yes_is_asked_for_once_and_openssh_agrees(
    hashing: str, sshd: LoopbackSshd, config: Callable[..., Path], known: Path
) -> None:
    path, ask = config(f"HashKnownHosts {hashing}"), Answers("what?", "yes")
    log_in(sshd, ask, path)
    question = ask.questions[0]
    assert isinstance(question, HostKeyQuestion)
    assert fingerprint(sshd.host_key) in question.instructions
    assert f"127.0.0.1:{sshd.port}" in question.instructions
    assert ask.asked[0].startswith("Is it the key that the site publishes?")
    assert known.read_text().startswith("|1|" if hashing == "yes" else f"[127.0.0.1]:{sshd.port} ssh-ed25519")
    assert (known.stat().st_mode & 0o777, known.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert ssh(path).stdout == "in\n"
    log_in(sshd, Answers(), path)


def test_the_published_fingerprint_is_an_answer(
    sshd: LoopbackSshd, config: Callable[..., Path], known: Path
) -> None:
    log_in(sshd, Answers(fingerprint(sshd.host_key)), config())
    assert known.exists()


@pytest.mark.parametrize("answers", [["no"], ["SHA256:" + "A" * 43] * 3], ids=["no", "another fingerprint"])
def test_anything_else_refuses_before_anything_is_sent(
    answers: list[str], sshd: LoopbackSshd, config: Callable[..., Path], known: Path
) -> None:
    before = sshd.accepted_logins()
    error = refused(sshd, Answers(*answers), config())
    assert f"127.0.0.1:{sshd.port}) is not known: ssh-ed25519 SHA256:" in error.cause
    assert error.hint
    assert "accept it once with --accept-new (`init`, `login`) or with: ssh -F" in error.hint
    assert sshd.accepted_logins() == before
    assert not known.exists()


def test_accept_new_shows_and_asks_nothing(
    sshd: LoopbackSshd, config: Callable[..., Path], known: Path
) -> None:
    ask = Answers()
    log_in(sshd, accepting_new_hosts(ask), config())
    assert fingerprint(sshd.host_key) in ask.questions[0].instructions
    assert (ask.asked, known.exists()) == ([], True)


@pytest.mark.parametrize(("value", "accepted"), [("accept-new", True), ("no", True), ("yes", False)])
def test_what_ssh_config_has_decided(
    value: str, accepted: bool, sshd: LoopbackSshd, config: Callable[..., Path], known: Path
) -> None:
    path = config(f"StrictHostKeyChecking {value}")
    if accepted:
        ask = Answers()
        log_in(sshd, ask, path)
        assert "Accepted" in ask.questions[0].instructions
    else:
        assert "is not known" in refused(sshd, Answers(), path).cause
    assert known.exists() == accepted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
def test_a_host_that_shows_another_key_is_never_asked_about(
    kind: str, sshd: LoopbackSshd, config: Callable[..., Path], known: Path, tmp_path: Path
) -> None:
    """A new type is no better than a new key: whoever sits in between may choose it."""
    impostor = Path(f"{make_key(tmp_path / 'impostor', kind=kind)}.pub").read_text()
    known.parent.mkdir()
    known.write_text(f"[127.0.0.1]:{sshd.port} {impostor}")
    path = config("StrictHostKeyChecking no")
    error = refused(sshd, accepting_new_hosts(Answers()), path)
    assert ("has changed" if kind == "ed25519" else "(known there: ssh-rsa)") in error.cause
    assert known.read_text() == f"[127.0.0.1]:{sshd.port} {impostor}"


def test_a_last_line_without_its_end_is_kept(
    sshd: LoopbackSshd, config: Callable[..., Path], known: Path
) -> None:
    known.parent.mkdir()
    known.write_text("# mine")
    log_in(sshd, Answers("yes"), config())
    assert known.read_text().splitlines()[0] == "# mine"
    log_in(sshd, Answers(), config())


def test_a_file_that_cannot_be_written_is_told_and_no_obstacle(sshd: LoopbackSshd, tmp_path: Path) -> None:
    path, ask = tmp_path / "ssh_config", Answers("yes")
    path.write_text(sshd.host_block(lines=["UserKnownHostsFile /proc/nowhere/known_hosts"]))
    log_in(sshd, ask, path)
    assert "could not be saved: /proc/nowhere" in ask.questions[-1].instructions
