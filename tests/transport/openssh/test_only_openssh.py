"""Logins that only OpenSSH can do: Kerberos, certificates, keys in hardware, all of an ssh_config."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.factory import connect
from clusterkit.transport.known_hosts import HostKeyError
from tests.doubles import security_key
from tests.doubles.agent import KeyAgent
from tests.doubles.certified import EXPIRED, Authority, CertifiedSshd
from tests.doubles.kerberos_sshd import KerberosSshd
from tests.doubles.loopback_sshd import LoopbackSshd
from tests.needs import needing
from tests.transport.answers import Answers
from tests.transport.openssh.commands import says, to
from tests.transport.runtime import masters

pytestmark = [
    pytest.mark.slow,  # each test starts a server and a master
    pytest.mark.needs("sshd"),
]


def refused(server: LoopbackSshd) -> TransportError:
    with pytest.raises(TransportError) as caught:
        to(server)
    return caught.value


@pytest.fixture
@needing("Kerberos", "sshd")
def kerberos(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KerberosSshd]:
    with closing(KerberosSshd(tmp_path / "sshd")) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_kerberos_ticket(kerberos: KerberosSshd, folder: Path) -> None:
    kerberos.realm.ticket()
    assert says(to(kerberos)) == "here\n"
    with closing(to(kerberos, keep=60)):
        kerberos.realm.destroy()
        assert says(to(kerberos)) == "here\n"  # the login is kept, whatever becomes of the ticket
    assert kerberos.accepted_logins() == 2


def test_no_kerberos_ticket(kerberos: KerberosSshd) -> None:
    with pytest.raises(TransportError) as caught:
        connect("node", ssh_config=kerberos.ssh_config, wanted="openssh", ask=Answers())
    assert "refuses the login" in caught.value.cause
    assert "Permission denied (gssapi-with-mic)" in caught.value.cause
    assert (
        caught.value.hint
        == "the server accepts Kerberos tickets, but you have none: run kinit, then try again"
    )


@pytest.fixture
def certified(tmp_path: Path, folder: Path) -> Iterator[CertifiedSshd]:
    with closing(CertifiedSshd(tmp_path / "sshd", Authority(tmp_path))) as server:
        yield server


def test_certificates_on_both_sides(certified: CertifiedSshd) -> None:
    assert "Permission denied (publickey)" in refused(certified).cause
    certified.certify()
    assert says(to(certified)) == "here\n"


def test_an_expired_certificate_is_named(certified: CertifiedSshd) -> None:
    certificate = certified.certify(valid=EXPIRED)
    error = refused(certified)
    assert "Permission denied (publickey)" in error.cause
    assert (
        error.hint
        == f"the certificate {certificate} has expired (2020-01-02T00:00:00): ask the site for a new one"
    )


def test_an_expired_certificate_of_the_host(certified: CertifiedSshd) -> None:
    certified.certify()
    certified.close()
    certified.certify_host("127.0.0.1", valid=EXPIRED)
    certified.start()
    error = refused(certified)
    assert isinstance(error, HostKeyError)
    assert (
        "is not known (Certificate invalid: expired); ssh says: Host key verification failed" in error.cause
    )


def test_a_key_that_only_an_agent_has(server: LoopbackSshd) -> None:
    with KeyAgent() as agent:
        agent.take(server.key)
        assert "refuses the login" in refused(server).cause
        server.ssh_config.write_text(server.host_block(lines=[agent.line]))
        with closing(connect("node", ssh_config=server.ssh_config, wanted="openssh", ask=Answers())) as far:
            assert far.run(["echo", "here"]).text == "here\n"


@pytest.mark.needs("a security key")
def test_a_security_key(server: LoopbackSshd, tmp_path: Path) -> None:
    key = security_key.make_security_key(tmp_path / "token")
    server.authorize(key)
    block = server.host_block(lines=[security_key.LINE]).replace(str(server.key), str(key))
    server.ssh_config.write_text(block.replace(security_key.LINE, ""))  # as if it were not plugged in
    assert "refuses the login" in refused(server).cause
    server.ssh_config.write_text(block)
    assert says(to(server)) == "here\n"


def test_match_exec_match_final_and_include(server: LoopbackSshd, tmp_path: Path) -> None:
    more, ran = tmp_path / "more", tmp_path / "ran"
    more.write_text(f"Match final originalhost node\n  Port {server.port}\n")
    server.ssh_config.write_text(
        f'Match originalhost node exec "touch {ran}"\n  HostName 127.0.0.1\n  User {server.user}\n'
        f"  IdentityFile {server.key}\n  UserKnownHostsFile {server.known_hosts}\n"
        f"Match all\nInclude {more}\n"
    )
    with closing(connect("node", ssh_config=server.ssh_config, wanted="openssh", ask=Answers())) as far:
        assert far.run(["echo", "here"]).text == "here\n"
    assert ran.exists()


def test_a_server_that_allows_one_session(tmp_path: Path, folder: Path) -> None:
    """Commands of one process follow one another; a second process waits, and then has its turn."""
    with closing(LoopbackSshd(tmp_path / "sshd", lines=["MaxSessions 1"])) as server:
        with closing(to(server, keep=60)) as far:
            assert [far.run(["echo", str(number)]).text for number in range(3)] == ["0\n", "1\n", "2\n"]
            assert says(to(server)) == "here\n"
            far.push(server.key, str(tmp_path / "copy"))
        assert (tmp_path / "copy").read_bytes() == server.key.read_bytes()
        assert server.accepted_logins() == 1


def test_a_server_that_forwards_nothing(tmp_path: Path, folder: Path) -> None:
    lines = [
        "AllowTcpForwarding no",
        "AllowStreamLocalForwarding no",
        "PermitTTY no",
        "DisableForwarding yes",
    ]
    with closing(LoopbackSshd(tmp_path / "sshd", lines=lines)) as server, closing(to(server, keep=60)):
        assert len(masters(folder)) == 1
        assert says(to(server)) == "here\n"
        assert server.accepted_logins() == 1
