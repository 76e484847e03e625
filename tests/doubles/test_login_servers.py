"""The servers and keys for logins that only OpenSSH can do, against plain `ssh`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.doubles import security_key
from tests.doubles.agent import KeyAgent
from tests.doubles.certified import EXPIRED, NOT_YET_VALID, Authority, CertifiedSshd
from tests.doubles.kerberos_realm import STRANGER
from tests.doubles.kerberos_sshd import KerberosSshd
from tests.doubles.loopback_sshd import LoopbackSshd

pytestmark = pytest.mark.needs("sshd")

IN = (0, "in\n", "")


def ssh(
    server: LoopbackSshd, *options: str, environment: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, output and complaints of `ssh node echo in`, which asks nobody anything."""
    argv = ["ssh", "-F", str(server.ssh_config), "-o", "BatchMode=yes", *options, server.alias, "echo", "in"]
    done = subprocess.run(
        argv,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return done.returncode, done.stdout, done.stderr.replace("\r\n", "\n")


def denied(server: LoopbackSshd, methods: str = "publickey") -> tuple[int, str, str]:
    return 255, "", f"{server.user}@127.0.0.1: Permission denied ({methods}).\n"


@pytest.fixture
def kerberos(tmp_path: Path) -> Iterator[KerberosSshd]:
    with closing(KerberosSshd(tmp_path / "sshd")) as server:
        yield server


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[CertifiedSshd]:
    with closing(CertifiedSshd(tmp_path / "sshd", Authority(tmp_path))) as server:
        yield server


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[LoopbackSshd]:
    with closing(LoopbackSshd(tmp_path / "sshd")) as server:
        yield server


@pytest.mark.slow
@pytest.mark.needs("Kerberos")
def test_a_ticket_logs_in_until_it_is_destroyed(kerberos: KerberosSshd) -> None:
    refusal = denied(kerberos, "gssapi-with-mic")
    assert ssh(kerberos, environment=kerberos.environment) == refusal
    kerberos.ticket()
    assert ssh(kerberos, environment=kerberos.environment) == IN
    assert ssh(kerberos) == refusal  # the ticket is nowhere else
    kerberos.realm.destroy()
    assert ssh(kerberos, environment=kerberos.environment) == refusal
    assert kerberos.accepted_logins() == 1


@pytest.mark.needs("Kerberos")
def test_a_ticket_counts_for_every_name_of_the_server(kerberos: KerberosSshd) -> None:
    kerberos.ticket()
    known = f"HostKeyAlias=[127.0.0.1]:{kerberos.port}"
    options = ["-o", "HostName=localhost", "-o", known]
    assert ssh(kerberos, *options, environment=kerberos.environment) == IN


@pytest.mark.needs("Kerberos")
def test_a_ticket_of_somebody_else_is_refused(kerberos: KerberosSshd) -> None:
    kerberos.ticket(person=STRANGER)
    assert ssh(kerberos, environment=kerberos.environment) == denied(kerberos, "gssapi-with-mic")
    assert "Failed gssapi-with-mic for" in kerberos.log()


@pytest.mark.slow
@pytest.mark.needs("Kerberos")
def test_a_ticket_expires(kerberos: KerberosSshd) -> None:
    kerberos.ticket(seconds=1)
    time.sleep(2.1)  # its times are whole seconds
    assert ssh(kerberos, environment=kerberos.environment) == denied(kerberos, "gssapi-with-mic")


@pytest.mark.needs("Kerberos")
def test_no_ticket_can_be_got_from_a_centre_that_is_down(kerberos: KerberosSshd) -> None:
    kerberos.close()
    with pytest.raises(RuntimeError, match="Cannot contact any KDC"):
        kerberos.ticket()
    kerberos.start()
    kerberos.ticket()
    assert ssh(kerberos, environment=kerberos.environment) == IN


@pytest.mark.slow
def test_only_a_certificate_in_its_time_logs_in(certified: CertifiedSshd) -> None:
    assert ssh(certified) == denied(certified)
    for valid in (EXPIRED, NOT_YET_VALID):
        certified.certify(valid=valid)
        assert ssh(certified) == denied(certified)
    assert "Certificate invalid: expired" in certified.log()
    assert "Certificate invalid: not yet valid" in certified.log()
    certified.certify()
    assert ssh(certified) == IN


def test_a_user_certificate_of_another_authority_is_refused(certified: CertifiedSshd, tmp_path: Path) -> None:
    Authority(tmp_path / "other").sign_user(certified.key, certified.user)
    assert ssh(certified) == denied(certified)


def test_a_host_certificate_is_believed_in_its_time(certified: CertifiedSshd) -> None:
    known = certified.known_hosts.read_text()
    certified.certify()
    assert ssh(certified) == IN
    assert certified.known_hosts.read_text() == known  # no key was added to the authority's line
    for names, valid, reason in (
        ("127.0.0.1", EXPIRED, "expired"),
        ("other.example", "always:forever", "name is not a listed principal"),
    ):
        certified.close()
        certified.certify_host(names, valid=valid)
        certified.start()
        words = f"Certificate invalid: {reason}\nHost key verification failed.\n"
        assert ssh(certified) == (255, "", words)


def test_a_key_that_only_the_agent_has_logs_in(plain: LoopbackSshd) -> None:
    with KeyAgent() as agent:
        agent.take(plain.key)
        assert not plain.key.exists()
        plain.ssh_config.write_text(plain.host_block(lines=["IdentityAgent SSH_AUTH_SOCK"]))
        assert ssh(plain, environment=agent.environment) == IN
        plain.ssh_config.write_text(plain.host_block(lines=[agent.line]))
        assert ssh(plain) == IN
    _, _, complaint = ssh(plain)
    assert complaint.endswith(denied(plain)[2])
    assert not agent.socket.exists()


def test_an_agent_whose_owner_does_not_agree_signs_nothing(plain: LoopbackSshd) -> None:
    with KeyAgent() as agent:
        agent.take(plain.key, confirmed=False)
        plain.ssh_config.write_text(plain.host_block(lines=[agent.line]))
        status, _, complaint = ssh(plain)
    assert status == 255
    assert f'signing failed for ED25519 "{plain.key}" from agent: agent refused operation\n' in complaint


@pytest.mark.needs("a security key")
def test_a_security_key_logs_in_while_it_is_plugged_in(plain: LoopbackSshd, tmp_path: Path) -> None:
    plain.key = security_key.make_security_key(tmp_path / "token")
    plain.authorize(plain.key)
    plain.ssh_config.write_text(plain.host_block(lines=[security_key.LINE]))
    assert ssh(plain) == IN
    plain.ssh_config.write_text(plain.host_block())
    status, _, complaint = ssh(plain)
    assert status == 255
    assert f'sign_and_send_pubkey: signing failed for ED25519-SK "{plain.key}"' in complaint
