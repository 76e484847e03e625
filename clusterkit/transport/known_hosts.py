"""Who a server must be: reading known_hosts files as OpenSSH does, and refusing everyone else.

Own reader, because a single `@revoked` or `@cert-authority` line makes paramiko's drop the whole
file, and it matches no wildcards. Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport.host_certificates import ALGORITHMS, problem
from clusterkit.transport.host_certificates import parse as parse_certificate
from clusterkit.transport.resolve import SSH_PORT, HostConfig

_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")


class HostKeyError(TransportError):
    """The host is not proved to be who it should be."""


class UnknownHostError(HostKeyError):
    """Not a single key of this host is known."""


@dataclass(frozen=True)
class Entry:
    """One line of a known_hosts file."""

    patterns: str
    """Comma-separated wildcard patterns, or one hashed name."""
    key_type: str
    key: bytes
    marker: str
    """`@revoked`, `@cert-authority` or empty."""
    path: Path
    line: int

    def matches(self, name: str) -> bool:
        """Whether this line is about `name`, a host or `[host]:port`."""
        if self.patterns.startswith("|1|"):
            return _hash_matches(self.patterns, name)
        verdict = False
        for pattern in self.patterns.split(","):
            negated = pattern.startswith("!")
            glob = re.escape(pattern.removeprefix("!")).replace(r"\*", ".*").replace(r"\?", ".")
            if re.fullmatch(glob, name, re.IGNORECASE):
                if negated:
                    return False
                verdict = True
        return verdict


def _hash_matches(hashed: str, name: str) -> bool:
    """`|1|salt|hash`: HMAC-SHA1 of the lower-case name, keyed with the salt, both base64."""
    try:
        _, _, salt, digest = hashed.split("|")
        expected = base64.b64decode(digest)
        found = hmac.digest(base64.b64decode(salt), name.lower().encode(), "sha1")
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(found, expected)


def parse(text: str, path: Path) -> list[Entry]:
    """The entries of a known_hosts file; comments and damaged lines are passed over, as OpenSSH does."""
    entries = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        marker = words.pop(0) if words[0].startswith("@") else ""
        if len(words) < 3:
            continue
        try:
            key = base64.b64decode(words[2], validate=True)
        except binascii.Error:
            continue
        entries.append(Entry(words[0], words[1], key, marker, path, number))
    return entries


def read(paths: Iterable[Path]) -> list[Entry]:
    """The entries of all files that exist.

    Raises:
        TransportError: a file is there and cannot be read.
    """
    entries = []
    for path in paths:
        try:
            entries += parse(path.read_text(errors="replace"), path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise TransportError(f"cannot read the known host keys in {path}: {error.strerror}") from error
    return entries


def fingerprint(key: bytes) -> str:
    """A key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


class Verdict:
    """What the known_hosts files say about one host."""

    def __init__(self, host: HostConfig, entries: Sequence[Entry]) -> None:
        self._host = host
        self.name = host.host_key_alias or (
            host.hostname if host.port == SSH_PORT else f"[{host.hostname}]:{host.port}"
        )
        """The name the keys are filed under."""
        names = [self.name]
        if not host.host_key_alias and host.port != SSH_PORT:
            names.append(host.hostname)  # OpenSSH takes a key known for the host at port 22 too
        self._own = [entry for entry in entries if entry.matches(self.name)]
        self._all = [entry for entry in entries if any(entry.matches(name) for name in names)]

    @property
    def known(self) -> Entry | None:
        """The first line about this host; None where it is not known, or only by an authority."""
        return next((entry for entry in self._all if not entry.marker), None)

    @property
    def algorithms(self) -> list[str]:
        """Host key algorithms to ask for first, so that the server shows what we know."""
        certified = ALGORITHMS if self._authorities else ()
        types = dict.fromkeys(entry.key_type for entry in self._all if not entry.marker)
        plain = [one for kind in types for one in (_RSA_SIGNATURES if kind == "ssh-rsa" else (kind,))]
        return [*certified, *plain]

    def check(self, key_type: str, key: bytes, certificate: bytes | None = None) -> None:
        """Accept what the server has shown, or raise.

        Args:
            key_type: of the key.
            key: the plain public key.
            certificate: that came with it; only asked for where an authority is known.

        Raises:
            UnknownHostError: no key of this host is known.
            HostKeyError: the key is another one than expected, or revoked.
        """
        shown = f"{key_type} {fingerprint(key)}"
        self._refuse_revoked(key, shown)
        doubt = self._doubt(certificate) if certificate is not None else None
        if certificate is not None and doubt is None:
            return
        if any(not entry.marker and entry.key == key for entry in self._all):
            return
        same_type = [entry for entry in self._own if not entry.marker and entry.key_type == key_type]
        if same_type:
            known = same_type[0]
            raise HostKeyError(
                f"the host key of {self._at} has changed: the server shows {shown}, "
                f"and {known.path} line {known.line} says {fingerprint(known.key)}",
                hint="someone may be listening; only if the site has announced a new key: "
                f"ssh-keygen -R '{self.name}' -f {known.path}, then {self._host.ssh_command}",
            )
        files = " or ".join(str(path) for path in self._host.known_hosts) or "any known_hosts file"
        others = sorted({entry.key_type for entry in self._own if not entry.marker})
        note = f" (known there: {', '.join(others)})" if others else ""
        if self._authorities:
            note += f" (its certificate does not count: {doubt})" if doubt else " (it shows no certificate)"
        raise (HostKeyError if others else UnknownHostError)(
            f"the host key of {self._at} is not known: {shown} is not in {files}{note}",
            hint="compare it with the fingerprint the site publishes, then answer yes in a terminal, or "
            f"accept it once with: {self._host.ssh_command}",
        )

    @property
    def _authorities(self) -> set[bytes]:
        """Keys whose certificates count for this host."""
        return {entry.key for entry in self._all if entry.marker == "@cert-authority"}

    def _doubt(self, blob: bytes) -> str | None:
        """Why a certificate does not count; None when it does."""
        try:
            certificate = parse_certificate(blob)
        except ValueError as error:
            return str(error)
        if certificate.authority not in self._authorities:
            return f"{fingerprint(certificate.authority)} has signed it, whom no @cert-authority line names"
        self._refuse_revoked(certificate.authority, f"its authority {fingerprint(certificate.authority)}")
        name = self._host.host_key_alias or self._host.hostname
        return problem(certificate, host=name, now=time.time())

    def _refuse_revoked(self, key: bytes, shown: str) -> None:
        if any(entry.marker == "@revoked" and entry.key == key for entry in self._all):
            raise HostKeyError(
                f"the host key of {self._at} is marked as revoked: {shown}",
                hint="do not log in: ask the site's support",
            )

    @property
    def _at(self) -> str:
        return f"{self._host.alias} ({self._host.address})"
