"""Logging in: keys, passphrases, agents, passwords and codes, and a clear word for every refusal."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.factory import connect
from tests.doubles.agent import KeyAgent
from tests.doubles.certified import Authority
from tests.doubles.dialog_server import SilentServer
from tests.doubles.loopback_sshd import LoopbackSshd, make_key
from tests.transport.answers import Answers, log_in, refused


@pytest.fixture
def own_config(sshd: LoopbackSshd, tmp_path: Path) -> Callable[..., Path]:
    """An ssh_config for the shared server with some lines put first, or another key in place of its own."""

    def write(*lines: str, key: Path | str = sshd.key) -> Path:
        path = tmp_path / "ssh_config"
        path.write_text(sshd.host_block(lines=lines).replace(str(sshd.key), str(key)))
        return path

    return write


# real sshd: keys -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_every_kind_of_key(
    kind: str, sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]
) -> None:
    key = make_key(tmp_path / "key", kind=kind)
    sshd.authorize(key)
    log_in(sshd, config=own_config(f"IdentityFile {key}"))


def test_a_key_the_server_does_not_know(
    sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]
) -> None:
    wrong = make_key(tmp_path / "wrong")
    config = own_config(key=wrong)
    error = refused(sshd, config=config)
    assert error.cause.startswith(
        f"node (127.0.0.1:{sshd.port}) refuses the login of {sshd.user}; tried {wrong} SHA256:"
    )
    assert error.cause.endswith("; it accepts publickey")
    assert error.hint == f"check user and key, or try by hand: ssh -F {config} node"


def test_no_key_at_all(sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]) -> None:
    absent = f"tried {tmp_path / 'absent'} (IdentityFile names it, and it does not exist)"
    error = refused(sshd, config=own_config(key=tmp_path / "absent"))
    assert absent in error.cause
    assert (
        error.hint == f"correct IdentityFile in the ssh configuration: {tmp_path / 'absent'} does not exist"
    )
    assert "tried nothing: no key was found" in refused(sshd, config=own_config(key="none")).cause


@pytest.mark.needs("sshd")
def test_only_what_was_answered_counts_as_wrong(tmp_path: Path) -> None:
    lines = [
        "KbdInteractiveAuthentication yes",
        "PasswordAuthentication yes",
    ]  # which asks nothing, without PAM
    with closing(LoopbackSshd(tmp_path / "sshd", lines=lines)) as server:
        config = tmp_path / "config"
        config.write_text(server.host_block().replace(str(server.key), "none"))
        ask = Answers("1", "2", "3", "4")
        error = refused(server, ask, config)
    assert ask.left == ["4"]
    assert "keyboard-interactive, password (3 times)" in error.cause
    assert (error.hint or "").startswith("stopped after 3 wrong answers")


def test_a_passphrase_is_asked_for_once(
    sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]
) -> None:
    key = make_key(tmp_path / "locked", passphrase="open sesame ü")
    sshd.authorize(key)
    config = own_config(key=key)
    ask = Answers("wrong", "open sesame ü")
    log_in(sshd, ask, config)
    assert ask.asked == [f"Passphrase for key {key}: "] * 2
    assert "wrong passphrase" in refused(sshd, Answers("a", "b", "c"), config).cause
    assert "refuses the login" in refused(sshd, Answers(""), config).cause


def test_an_open_key_goes_before_a_locked_one(
    sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]
) -> None:
    locked = make_key(tmp_path / "locked", passphrase="secret")
    ask = Answers()
    log_in(sshd, ask, own_config(f"IdentityFile {locked}"))
    assert ask.asked == []


@pytest.mark.needs("sshd")
def test_a_certificate_is_offered_and_then_the_plain_key(
    sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]
) -> None:
    authority, key = Authority(tmp_path), make_key(tmp_path / "certified")
    authority.sign_user(key, sshd.user)
    with closing(LoopbackSshd(tmp_path / "sshd", lines=[f"TrustedUserCAKeys {authority.key}.pub"])) as server:
        config = tmp_path / "config"
        config.write_text(server.host_block().replace(str(server.key), str(key)))
        log_in(server, config=config)
    config = own_config(key=key)
    assert refused(sshd, config=config).cause.count(str(key)) == 2
    sshd.authorize(key)  # the plain key is enough where nobody trusts the authority
    log_in(sshd, config=config)


def test_a_damaged_key_is_passed_over(
    sshd: LoopbackSshd, tmp_path: Path, own_config: Callable[..., Path]
) -> None:
    (tmp_path / "junk").write_text("not a key\n")
    log_in(sshd, config=own_config(f"IdentityFile {tmp_path / 'junk'}"))


def test_keys_of_the_agent(sshd: LoopbackSshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, config = make_key(tmp_path / "in_agent"), tmp_path / "config"
    sshd.authorize(key)
    block = sshd.host_block().replace(str(sshd.key), str(key))
    any_key = block.replace("Only yes", "Only no")
    with KeyAgent() as agent:
        agent.take(key)  # only its public half stays, which tells the agent's key
        config.write_text(any_key.replace("IdentityAgent none", agent.line))
        log_in(sshd, config=config)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(agent.socket))
        config.write_text(any_key.replace("IdentityAgent none", "IdentityAgent SSH_AUTH_SOCK"))
        log_in(sshd, config=config)
        config.write_text(block)  # IdentityAgent none
        refused(sshd, config=config)


# unreachable ---------------------------------------------------------------------------------


def config_for(folder: Path, port: int, *lines: str) -> Path:
    path = folder / "config"
    path.write_text(
        "Host away\n" + "".join(f"  {one}\n" for one in (*lines, "HostName 127.0.0.1", f"Port {port}"))
    )
    return path


def test_a_refused_port_names_host_and_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(
        TransportError, match=rf"(?m)^away \(127\.0\.0\.1:{port}\) cannot be reached: Connection refused$"
    ):
        connect("away", ssh_config=config_for(tmp_path, port))


def test_a_name_nobody_knows(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host away\n  HostName no-such-host.invalid\n")
    with pytest.raises(
        TransportError, match=r"the host name no-such-host\.invalid \(for away\) cannot be resolved"
    ):
        connect("away", ssh_config=config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "behaviour",
    [
        lambda peer: None,
        lambda peer: peer.close(),
        lambda peer: peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        lambda peer: peer.sendall(b"SSH-2.0-stuck\r\n"),
    ],
    ids=["silent", "closes", "http", "stuck"],
)
def test_something_else_listens(behaviour: Callable[[socket.socket], None], tmp_path: Path) -> None:
    with closing(SilentServer(behaviour)) as server:
        config = config_for(tmp_path, server.port, "ConnectTimeout 1")
        with pytest.raises(
            TransportError, match=rf"^away .*:{server.port}\) does not answer as an SSH server"
        ):
            connect("away", ssh_config=config)
