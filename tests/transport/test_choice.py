"""Which of the two logs in, and the reason that is told."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from clusterkit.errors import TransportError
from clusterkit.transport.factory import LinkChoice, choose, connect
from clusterkit.transport.resolve import HostConfig, parse_ssh_g
from tests.programs import write_program

HOST = HostConfig(alias="hpc", hostname="h", port=22, user="me")


def test_importing_the_factory_imports_no_paramiko() -> None:
    script = (
        "import sys; import clusterkit.transport.factory;"
        "print([name for name in ('paramiko', 'cryptography', 'getpass') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_nothing_asks_for_more_than_paramiko() -> None:
    assert choose(HOST, "auto", keep=False) == LinkChoice(False, "nothing requires OpenSSH")


def test_a_login_that_is_to_be_kept() -> None:
    assert choose(HOST, "auto", keep=True) == LinkChoice(True, "the login is to be kept open", optional=True)


@pytest.mark.parametrize("wanted", ["paramiko", "openssh"])
def test_the_setting_decides(wanted: str) -> None:
    host = replace(HOST, openssh_only=("ProxyJump",) if wanted == "paramiko" else ())
    choice = choose(host, wanted, keep=wanted == "paramiko")  # type: ignore[arg-type]
    assert (choice.name, choice.why) == (wanted, f'transport = "{wanted}"')


@pytest.mark.parametrize(
    ("line", "keyword"),
    [
        ("ProxyJump gate", "ProxyJump"),
        ("ProxyCommand nc %h %p", "ProxyCommand"),
        ("CertificateFile /keys/cert", "CertificateFile"),
        ("PKCS11Provider /usr/lib/token.so", "PKCS11Provider"),
        ("KnownHostsCommand /bin/true", "KnownHostsCommand"),
        ("RevokedHostKeys /etc/revoked", "RevokedHostKeys"),
    ],
)
@pytest.mark.needs("ssh")
def test_what_the_configuration_asks_for(line: str, keyword: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host hpc\n  {line}\n")
    known = subprocess.run(
        ["ssh", "-F", str(config), "-G", "hpc"], capture_output=True, text=True, check=True
    ).stdout
    choice = choose(parse_ssh_g(known, alias="hpc"), "auto", keep=True)
    assert choice == LinkChoice(True, f"the ssh configuration sets {keyword}")


def test_a_security_key(tmp_path: Path) -> None:
    key, plain = tmp_path / "token", tmp_path / "plain"
    Path(f"{key}.pub").write_text("sk-ssh-ed25519@openssh.com AAAA me\n")
    Path(f"{plain}.pub").write_text("ssh-ed25519 AAAA me\n")
    assert not choose(replace(HOST, identity_files=(plain,)), "auto", keep=False).openssh
    choice = choose(replace(HOST, identity_files=(plain, key)), "auto", keep=False)
    assert choice == LinkChoice(True, f"{key} is a security key")


def test_an_authority_is_known_for_the_host(tmp_path: Path) -> None:
    known = tmp_path / "known"
    blob = "AAAAC3NzaC1lZDI1NTE5AAAAIGtVN2ZfWwtBbpIk0IAJq1Vxc4yRz1bpKzyyS7TyBzYl"
    known.write_text(f"@cert-authority *.example ssh-ed25519 {blob}\n")
    host = replace(HOST, known_hosts=(known,))
    assert not choose(host, "auto", keep=False).openssh
    choice = choose(replace(host, hostname="h.example"), "auto", keep=False)
    assert choice == LinkChoice(True, "a @cert-authority line in known_hosts applies to it")


@pytest.mark.parametrize(("status", "openssh"), [(0, True), (1, False)])
def test_a_kerberos_ticket(
    status: int, openssh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(write_program(tmp_path, "klist", f"exit {status}")), prepend=":")
    assert choose(replace(HOST, kerberos=True), "auto", keep=False).openssh == openssh
    assert not choose(HOST, "auto", keep=False).openssh


@pytest.mark.parametrize("line", ["RevokedHostKeys /etc/revoked", "ProxyJump gate"])
def test_paramiko_refuses_what_it_would_ignore(line: str, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host hpc\n  {line}\n")
    with pytest.raises(TransportError) as caught:
        connect("hpc", ssh_config=config, wanted="paramiko")
    keyword = line.split()[0]
    assert (
        caught.value.cause == f"the ssh configuration of hpc sets {keyword}, which paramiko does not support"
    )
    assert caught.value.hint == 'set transport = "auto" or "openssh" for the cluster'
