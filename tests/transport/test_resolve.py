"""Reading the user's ssh_config: recorded answers of `ssh -G`, and the real ssh of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.resolve import Destination, HostConfig, parse_destination, parse_ssh_g, resolve

ENVIRONMENT = {"HOME": "/home/me", "USER": "me", "KEYS": "/keys"}
RECORDED = """\
user alice
hostname login1.hpc.example
port 2222
addressfamily any
batchmode no
identitiesonly yes
hostkeyalias hpc
connecttimeout 7
identityfile ~/.ssh/id_%r
identityfile ${KEYS}/with blank
identityfile none
userknownhostsfile /home/me/.ssh/known_hosts /home/me/.ssh/known_hosts2
globalknownhostsfile /etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2
proxyjump bob@gate:2022,inner
identityagent ~/agent.sock
"""


def recorded(text: str = RECORDED, alias: str = "hpc") -> HostConfig:
    return parse_ssh_g(text, alias=alias, environment=ENVIRONMENT)


def test_a_recorded_answer() -> None:
    assert recorded() == HostConfig(
        alias="hpc",
        hostname="login1.hpc.example",
        port=2222,
        user="alice",
        identity_files=(Path("/home/me/.ssh/id_alice"), Path("/keys/with blank")),
        identities_only=True,
        identity_agent="/home/me/agent.sock",
        known_hosts=(
            Path("/home/me/.ssh/known_hosts"),
            Path("/home/me/.ssh/known_hosts2"),
            Path("/etc/ssh/ssh_known_hosts"),
            Path("/etc/ssh/ssh_known_hosts2"),
        ),
        host_key_alias="hpc",
        proxy_jump=("bob@gate:2022", "inner"),
        connect_timeout=7.0,
        openssh_only=("ProxyJump",),
    )


def test_tokens_of_a_proxy_command() -> None:
    text = "user a\nhostname h\nport 22\nproxycommand nc -x %%h %h %p %r %n\n"
    assert recorded(text, alias="a@name").proxy_command == "nc -x %h h 22 a name"


@pytest.mark.parametrize("value", ["none", "None"])
def test_none_is_nothing(value: str) -> None:
    text = (
        f"user a\nhostname h\nport 22\nproxyjump {value}\nproxycommand {value}\nuserknownhostsfile {value}\n"
    )
    host = recorded(text)
    assert (host.proxy_jump, host.proxy_command, host.known_hosts) == ((), None, ())


def test_an_ipv6_address_loses_its_brackets() -> None:
    host = recorded("user a\nhostname [fd00::5]\nport 22\n")
    assert (host.hostname, host.address) == ("fd00::5", "[fd00::5]:22")


@pytest.mark.parametrize(
    ("given", "agent"), [("none", "none"), ("SSH_AUTH_SOCK", None), ("/run/%d/a", "/run//home/me/a")]
)
def test_the_agent(given: str, agent: str | None) -> None:
    assert recorded(f"user a\nhostname h\nport 22\nidentityagent {given}\n").identity_agent == agent


def test_an_unset_variable_is_an_error() -> None:
    with pytest.raises(TransportError, match=r"variable NOPE in .* is not set"):
        recorded("user a\nhostname h\nport 22\nidentityfile ${NOPE}/key\n")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("gate", Destination("gate", None, None)),
        ("bob@gate:2022", Destination("gate", "bob", 2022)),
        ("ssh://bob@gate:22/", Destination("gate", "bob", 22)),
        ("[fd00::5]:22", Destination("fd00::5", None, 22)),
        ("me@uni@gate", Destination("gate", "me@uni", None)),
        ("a b", None),
        ("a:b", None),
    ],
)
def test_destinations(text: str, parts: Destination | None) -> None:
    if parts is None:
        with pytest.raises(TransportError, match="not a host name"):
            parse_destination(text)
    else:
        assert parse_destination(text) == parts


# the real ssh --------------------------------------------------------------------------------


def config(folder: Path, text: str) -> Path:
    path = folder / "config"
    path.write_text(text)
    return path


@pytest.mark.needs("ssh")
def test_include_match_and_overrides(tmp_path: Path) -> None:
    (tmp_path / "more").write_text("Host hpc\n    HostName %h.example\n    IdentityFile ~/.ssh/special\n")
    text = f"Include {tmp_path}/more\nMatch user bob\n    Port 2200\nHost *\n    User alice\n"
    path = config(tmp_path, text)
    host = resolve("hpc", config=path)
    assert (host.hostname, host.user, host.port) == ("hpc.example", "alice", 22)
    assert host.identity_files == (Path.home() / ".ssh" / "special",)
    assert (resolve("hpc", config=path, user="bob").port, resolve("bob@hpc", config=path).port) == (
        2200,
        2200,
    )
    assert resolve("hpc", config=path, port=99).port == 99
    assert resolve("ssh://bob@hpc:77", config=path).port == 77


@pytest.mark.needs("ssh")
def test_errors_of_a_configuration_are_shown(tmp_path: Path) -> None:
    path = config(tmp_path, "Host x\n    UseKeychain yes\n    Port zero\n")
    with pytest.raises(
        TransportError, match=r"line 2: .*: usekeychain; .* line 3: Bad port 'zero'"
    ) as caught:
        resolve("x", config=path)
    assert "terminating" not in str(caught.value)
    assert "`IgnoreUnknown usekeychain`" in str(caught.value.hint)
    path = config(tmp_path, "IgnoreUnknown usekeychain\nHost x\n    UseKeychain yes\n")
    assert resolve("x", config=path).hostname == "x"
    path = config(tmp_path, "Host x\n    ProxyJump x\n    HostName a b\n")
    with pytest.raises(TransportError, match=r"line 3: .*extra arguments"):
        resolve("x", config=path)
    with pytest.raises(TransportError, match="does not exist"):
        resolve("x", config=tmp_path / "absent")


@pytest.mark.parametrize("name", ["", "-oProxyCommand=touch /tmp/x"])
def test_a_host_name_is_never_an_option(name: str) -> None:
    with pytest.raises(TransportError, match="not a host name"):
        resolve(name)


# without ssh ---------------------------------------------------------------------------------


@pytest.fixture
def no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@pytest.mark.usefixtures("no_ssh")
def test_paramikos_reader_stands_in(tmp_path: Path) -> None:
    path = config(tmp_path, "Host hpc\n  HostName h.example\n  User alice\n  Port 2222\n  IdentityFile ~/k\n")
    host = resolve("bob@hpc", config=path)
    assert (host.alias, host.hostname, host.user, host.port) == ("bob@hpc", "h.example", "bob", 2222)
    assert host.identity_files == (Path.home() / "k",)
    assert host.known_hosts[0] == Path(os.path.expanduser("~/.ssh/known_hosts"))  # noqa: PTH111


@pytest.mark.usefixtures("no_ssh")
@pytest.mark.parametrize("port", ["zero", "0", "65536", "9" * 400])
def test_a_port_that_is_none_is_refused_without_ssh_too(tmp_path: Path, port: str) -> None:
    with pytest.raises(TransportError, match=f"config: Bad port '{port}'"):
        resolve("hpc", config=config(tmp_path, f"Host hpc\n  Port {port}\n"))


@pytest.mark.usefixtures("no_ssh")
@pytest.mark.parametrize(
    ("line", "what"), [("Include other", "Include"), ("Match host x exec true", "Match exec")]
)
def test_what_it_cannot_read_is_refused_instead_of_half_read(tmp_path: Path, line: str, what: str) -> None:
    path = config(tmp_path, f"{line}\n")
    with pytest.raises(TransportError, match=f"has {what} lines"):
        resolve("hpc", config=path)
