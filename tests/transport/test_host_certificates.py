"""Host certificates: OpenSSH and we believe the same ones."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterkit.transport.host_certificates import parse, problem
from tests.doubles.loopback_sshd import LoopbackSshd, find_sshd, make_key
from tests.transport.answers import log_in, refused

pytestmark = pytest.mark.slow


class Certified:
    """A server whose only host key has a certificate."""

    def __init__(self, server: LoopbackSshd, authority: Path) -> None:
        self.server, self.authority = server, authority

    def sign(self, *options: str, authority: Path | None = None) -> None:
        """Give the host key a new certificate, and start the server with it."""
        key = authority or self.authority
        argv = [
            "ssh-keygen",
            "-q",
            "-s",
            str(key),
            "-I",
            "node's key",
            *options,
            f"{self.server.host_key}.pub",
        ]
        subprocess.run(argv, check=True, capture_output=True)
        self.server.close()
        self.server.start()

    def know(self, *lines: str) -> None:
        self.server.known_hosts.write_text("".join(f"{line}\n" for line in lines))

    def authority_line(self, marker: str = "@cert-authority", name: str = "") -> str:
        name = name or f"[127.0.0.1]:{self.server.port}"
        kind, blob, *_ = Path(f"{self.authority}.pub").read_text().split()
        return f"{marker} {name} {kind} {blob}"

    def openssh_agrees(self) -> bool:
        argv = ["ssh", "-F", str(self.server.ssh_config), "-o", "StrictHostKeyChecking=yes", "node", "true"]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0


@pytest.fixture(params=["ed25519"])
def certified(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Certified]:
    if find_sshd() is None:
        pytest.skip("sshd is not installed")
    folder = tmp_path / "sshd"
    authority = make_key(tmp_path / "authority", kind=request.param)
    lines = [f"HostCertificate {folder}/host_key-cert.pub"]
    with closing(LoopbackSshd(folder, lines=lines)) as server:
        node = Certified(server, authority)
        node.sign("-h", "-n", "127.0.0.1,node.example")
        node.know(node.authority_line())
        yield node


@pytest.mark.parametrize("certified", ["ed25519", "rsa", "ecdsa"], indirect=True)
def test_a_certificate_is_enough(certified: Certified) -> None:
    log_in(certified.server)
    assert certified.openssh_agrees()
    assert len(certified.server.known_hosts.read_text().splitlines()) == 1  # nothing was added


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_every_kind_of_host_key(kind: str, certified: Certified) -> None:
    key = certified.server.host_key
    for path in (key, Path(f"{key}.pub")):
        path.unlink()
    make_key(key, kind=kind)
    certified.sign("-h", "-n", "127.0.0.1")
    log_in(certified.server)
    assert certified.openssh_agrees()


def test_the_alias_is_what_a_certificate_must_name(certified: Certified) -> None:
    server = certified.server
    server.ssh_config.write_text(server.host_block(lines=["HostKeyAlias node.example"]))
    certified.know(certified.authority_line(name="*.example"))
    log_in(server)
    assert certified.openssh_agrees()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-h", "-n", "other.example"), "it is for other.example"),
        (("-h",), "it is for no host"),
        (("-h", "-n", "127.0.0.1", "-V", "20200101:20200102"), "it has expired"),
        (("-h", "-n", "127.0.0.1", "-V", "+1d:+2d"), "it is not valid yet"),
    ],
    ids=["another host", "no host", "expired", "too early"],
)
def test_a_certificate_that_says_nothing_about_this_host(
    options: tuple[str, ...], reason: str, certified: Certified
) -> None:
    certified.sign(*options)
    error = refused(certified.server, refuse_all)
    assert (
        f"is not in {certified.server.known_hosts} (its certificate does not count: {reason})" in error.cause
    )
    if options != ("-h",):  # where no host is named, OpenSSH takes any; we do not
        assert not certified.openssh_agrees()


def refuse_all(question: object) -> list[str]:
    return ["no"]


def test_another_authority(certified: Certified, tmp_path: Path) -> None:
    certified.sign("-h", "-n", "127.0.0.1", authority=make_key(tmp_path / "impostor"))
    error = refused(certified.server, refuse_all)
    assert "has signed it, whom no @cert-authority line names" in error.cause
    assert not certified.openssh_agrees()


def test_a_weak_signature(tmp_path: Path, certified: Certified) -> None:
    certified.authority = make_key(tmp_path / "rsa", kind="rsa")
    certified.know(certified.authority_line())
    certified.sign("-h", "-n", "127.0.0.1", "-t", "ssh-rsa")
    assert "its signature is wrong" in refused(certified.server, refuse_all).cause
    assert not certified.openssh_agrees()


@pytest.mark.parametrize("what", ["authority", "key"])
def test_revoked(what: str, certified: Certified) -> None:
    own = Path(f"{certified.server.host_key}.pub").read_text()
    revoked = (
        certified.authority_line("@revoked", "*") if what == "authority" else f"@revoked * {own.strip()}"
    )
    certified.know(certified.authority_line(), revoked)
    assert "is marked as revoked" in refused(certified.server, refuse_all).cause
    assert not certified.openssh_agrees()


def test_a_revoked_authority_spoils_a_key_that_is_known(certified: Certified, tmp_path: Path) -> None:
    known = f"* {Path(f'{certified.server.host_key}.pub').read_text().strip()}"
    other = Path(f"{make_key(tmp_path / 'other')}.pub").read_text().strip()
    certified.know(known, f"@cert-authority * {other}", certified.authority_line("@revoked", "*"))
    assert "is marked as revoked: its authority" in refused(certified.server, refuse_all).cause
    assert not certified.openssh_agrees()


@pytest.mark.parametrize("binary", [False, True], ids=["list", "krl"])
@pytest.mark.parametrize("what", ["authority", "key"])
def test_revoked_host_keys(what: str, binary: bool, certified: Certified, tmp_path: Path) -> None:
    public = Path(f"{certified.authority if what == 'authority' else certified.server.host_key}.pub")
    revoked = tmp_path / "revoked"
    if binary:
        subprocess.run(["ssh-keygen", "-q", "-k", "-f", revoked, public], check=True)
    else:
        revoked.write_text(public.read_text())
    server = certified.server
    server.ssh_config.write_text(server.host_block(lines=[f"RevokedHostKeys {revoked}"]))
    assert "is marked as revoked" in refused(server, refuse_all).cause
    assert not certified.openssh_agrees()


def test_the_plain_key_still_counts(certified: Certified) -> None:
    certified.sign("-h", "-n", "other.example")
    own = Path(f"{certified.server.host_key}.pub").read_text().strip()
    certified.know(certified.authority_line(), f"[127.0.0.1]:{certified.server.port} {own}")
    log_in(certified.server)
    assert certified.openssh_agrees()


def blob(certified: Certified) -> bytes:
    return base64.b64decode(Path(f"{certified.server.host_key}-cert.pub").read_text().split()[1])


def test_a_flipped_byte_is_noticed(certified: Certified) -> None:
    whole = blob(certified)
    assert problem(parse(whole), host="127.0.0.1", now=2e9) is None
    signed = len(parse(whole).signed)
    for position in range(signed):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        try:
            certificate = parse(bytes(damaged))
        except ValueError:
            continue
        assert problem(certificate, host="127.0.0.1", now=2e9) is not None


@given(st.binary(max_size=300))
def test_rubbish_is_no_certificate(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a certificate"):
        parse(data)
