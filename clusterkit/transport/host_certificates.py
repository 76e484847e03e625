"""Host certificates: what a server shows instead of a plain key, vouched for by an authority we know.

paramiko negotiates them and checks nothing of them; the checks are here. Format: OpenSSH's
PROTOCOL.certkeys; what to check: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT, and ssh-keygen(1), CERTIFICATES.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko
from paramiko.pkey import UnknownKeyType

ALGORITHMS = (
    "ssh-ed25519-cert-v01@openssh.com",
    "ecdsa-sha2-nistp256-cert-v01@openssh.com",
    "ecdsa-sha2-nistp384-cert-v01@openssh.com",
    "ecdsa-sha2-nistp521-cert-v01@openssh.com",
    "rsa-sha2-512-cert-v01@openssh.com",
    "rsa-sha2-256-cert-v01@openssh.com",
)
_HOST = 2
_WEAK = b"ssh-rsa"
"""An authority's RSA signature with SHA-1; OpenSSH refuses it too."""
_KEY_FIELDS = {b"ssh-ed25519": 1, b"ecdsa-sha2-": 2, b"ssh-rsa": 2}
"""How many fields the public key has, by the beginning of its type."""


@dataclass(frozen=True)
class HostCertificate:
    """One certificate, taken apart and not yet believed."""

    kind: int
    name: str
    """What the authority calls it."""
    principals: tuple[str, ...]
    valid_after: int
    valid_before: int
    """Seconds since 1970."""
    critical: bytes
    """Options that must be understood; none is known for hosts."""
    authority: bytes
    """Public key of the signer."""
    signature: bytes
    signed: bytes
    """What the signature is about."""


def parse(blob: bytes) -> HostCertificate:
    """Take a certificate apart.

    Raises:
        ValueError: it is none.
    """
    try:
        fields = _Fields(blob)
        key_type = fields.text()
        count = next(count for start, count in _KEY_FIELDS.items() if key_type.startswith(start))
        for _ in range(1 + count):  # the nonce, and the public key
            fields.text()
        fields.number(8)  # serial
        kind = fields.number(4)
        name = fields.text().decode("utf-8", "replace")
        principals = tuple(one.decode("utf-8", "replace") for one in _Fields(fields.text()).rest())
        valid_after, valid_before = fields.number(8), fields.number(8)
        critical = fields.text()
        fields.text()  # extensions
        fields.text()  # reserved
        authority = fields.text()
        signed = blob[: fields.position]
        return HostCertificate(
            kind, name, principals, valid_after, valid_before, critical, authority, fields.text(), signed
        )
    except (struct.error, StopIteration) as error:
        raise ValueError("not a certificate") from error


def problem(certificate: HostCertificate, *, host: str, now: float) -> str | None:
    """Why a certificate of an authority we know says nothing about a host; None when it does.

    Args:
        certificate: its authority is known to be trusted for this host.
        host: the name that was asked for, without a port.
        now: seconds since 1970.
    """
    if certificate.kind != _HOST:
        return "it is a certificate for a user, not for a host"
    if host.lower() not in (one.lower() for one in certificate.principals):
        return f"it is for {', '.join(certificate.principals) or 'no host'}"
    if not certificate.valid_after <= now < certificate.valid_before:
        return "it is not valid yet" if now < certificate.valid_after else "it has expired"
    if certificate.critical:
        return "it has conditions that are not understood"
    if not _signed_by_its_authority(certificate):
        return "its signature is wrong"
    return None


def _signed_by_its_authority(certificate: HostCertificate) -> bool:
    try:
        if _Fields(certificate.signature).text() == _WEAK:
            return False
        key_type = _Fields(certificate.authority).text().decode("ascii")
        key = paramiko.PKey.from_type_string(key_type, certificate.authority)
        return bool(key.verify_ssh_sig(certificate.signed, paramiko.Message(certificate.signature)))
    except (paramiko.SSHException, UnknownKeyType, ValueError, struct.error):
        # damaged, or a kind of key that cannot be checked here
        return False


class _Fields:
    """Reads the fields of SSH's wire format (RFC 4251, 5) one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self.position = data, 0

    def number(self, size: int) -> int:
        (value,) = struct.unpack_from(">Q" if size == 8 else ">I", self._data, self.position)
        self.position += size
        return int(value)

    def text(self) -> bytes:
        size = self.number(4)
        if self.position + size > len(self._data):
            raise struct.error("cut off")
        self.position += size
        return self._data[self.position - size : self.position]

    def rest(self) -> Iterator[bytes]:
        while self.position < len(self._data):
            yield self.text()
