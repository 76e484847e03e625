"""Who a server must be: reading known_hosts files as OpenSSH does, and refusing everyone else.

Own reader, because a single `@revoked` or `@cert-authority` line makes paramiko's drop the whole
file, and it matches no wildcards. Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport.host_certificates import ALGORITHMS, problem
from clusterkit.transport.host_certificates import parse as parse_certificate
from clusterkit.transport.resolve import SSH_PORT, HostConfig

_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
_LONGEST_PATTERN = 1022
"""Bytes; OpenSSH gives up a line at a longer one."""
_BINARY_LIST = b"SSHKRL\n\0"


class HostKeyError(TransportError):
    """The host is not proved to be who it should be."""


class UnknownHostError(HostKeyError):
    """Not a single key of this host is known."""


@dataclass(frozen=True)
class KnownHost:
    """One line of a known_hosts file."""

    patterns: bytes
    """Comma-separated wildcard patterns, or one hashed name."""
    key_type: str
    key: bytes
    marker: str
    """`@revoked`, `@cert-authority` or empty."""
    path: Path
    line: int

    def matches(self, name: str) -> bool:
        """Whether this line is about `name`, a host or `[host]:port`."""
        wanted = os.fsencode(name).lower()
        if self.patterns.startswith(b"|"):
            return _hash_matches(self.patterns, wanted)
        verdict = False
        for pattern in self.patterns.split(b","):
            text = pattern.removeprefix(b"!")
            if len(text) > _LONGEST_PATTERN:
                return False
            glob = re.escape(text.lower()).replace(rb"\*", b".*").replace(rb"\?", b".")
            if re.fullmatch(glob, wanted, re.DOTALL):
                if pattern.startswith(b"!"):
                    return False
                verdict = True
        return verdict


def _hash_matches(hashed: bytes, name: bytes) -> bool:
    """`|1|salt|hash`: HMAC-SHA1 of the lower-case name, keyed with the salt, both base64."""
    try:
        salt = base64.b64decode(hashed.split(b"|")[2], validate=True)
    except (IndexError, ValueError):
        return False
    digest = base64.b64encode(hmac.digest(salt, name, "sha1"))
    return hmac.compare_digest(hashed, b"|1|" + base64.b64encode(salt) + b"|" + digest)


def parse(data: bytes, path: Path) -> list[KnownHost]:
    """The entries of a known_hosts file; comments and damaged lines are passed over, as OpenSSH does.

    A line ends with a newline and its words with a space or a tab: whatever else Python takes for either is
    part of a word.
    """
    entries = []
    for number, line in enumerate(data.split(b"\n"), 1):
        words = _words(line)
        marker = os.fsdecode(words.pop(0)) if words and words[0].startswith(b"@") else ""
        key = _key(words[1:])
        if key is not None:
            entries.append(KnownHost(words[0], key[0], key[1], marker, path, number))
    return entries


def _words(line: bytes) -> list[bytes]:
    """The words of a line, which ends at a zero byte; none of a comment."""
    words = [word for word in re.split(rb"[ \t]+", line.partition(b"\0")[0]) if word]
    return [] if words and words[0].startswith(b"#") else words


def _key(words: Sequence[bytes]) -> tuple[str, bytes] | None:
    """Type and key, if the words begin with both and they fit."""
    try:
        key = base64.b64decode(words[1].translate(None, b"\r\v\f"), validate=True)
    except (IndexError, ValueError):
        return None
    fits = key.startswith(len(words[0]).to_bytes(4, "big") + words[0])
    return (words[0].decode("ascii", "replace"), key) if fits else None


def read(paths: Iterable[Path]) -> list[KnownHost]:
    """The entries of all files that exist.

    Raises:
        TransportError: a file is there and cannot be read.
    """
    entries = []
    for path in paths:
        try:
            entries += parse(path.read_bytes(), path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise TransportError(f"cannot read the known host keys in {path}: {error.strerror}") from error
    return entries


def fingerprint(key: bytes) -> str:
    """A key's fingerprint as `ssh-keygen -l` prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")


class HostKeyVerdict:
    """What the known_hosts files say about one host."""

    def __init__(self, host: HostConfig, entries: Sequence[KnownHost]) -> None:
        self._host = host
        self.name = host.host_key_alias or (
            host.hostname if host.port == SSH_PORT else f"[{host.hostname}]:{host.port}"
        )
        """The name the keys are filed under."""
        own = [entry for entry in entries if entry.matches(self.name)]
        # OpenSSH takes a key known for the host at port 22 where nothing is known of this port
        plain = self.name if host.host_key_alias or host.port == SSH_PORT else host.hostname
        more = [entry for entry in entries if entry.matches(plain)]
        self._revoked = {entry.key for entry in (*own, *more) if entry.marker == "@revoked"}
        self._own = [entry for entry in own if not entry.marker]
        self._keys = self._own or [entry for entry in more if not entry.marker]
        self._authorities = {one.key for one in (*own, *more) if one.marker == "@cert-authority"}
        """Keys whose certificates count for this host."""

    @property
    def known(self) -> KnownHost | None:
        """The first line about this host; None where it is not known, or only by an authority."""
        return next(iter(self._keys), None)

    @property
    def algorithms(self) -> list[str]:
        """Host key algorithms to ask for first, so that the server shows what we know."""
        certified = ALGORITHMS if self._authorities else ()
        types = dict.fromkeys(entry.key_type for entry in self._keys)
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
        self._refuse_revoked(key, certificate, shown)
        doubt = self._doubt(certificate) if certificate is not None else None
        if certificate is not None and doubt is None:
            return
        if any(entry.key == key for entry in self._keys):
            return
        same_type = [entry for entry in self._own if entry.key_type == key_type]
        if same_type:
            known = same_type[0]
            raise HostKeyError(
                f"the host key of {self._at} has changed: the server shows {shown}, "
                f"and {known.path} line {known.line} says {fingerprint(known.key)}",
                hint="someone may be listening; only if the site has announced a new key: "
                f"ssh-keygen -R '{self.name}' -f {known.path}, then {self._host.ssh_command}",
            )
        files = " or ".join(str(path) for path in self._host.known_hosts) or "any known_hosts file"
        others = sorted({entry.key_type for entry in self._own})
        note = f" (known there: {', '.join(others)})" if others else ""
        if self._authorities:
            note += f" (its certificate does not count: {doubt})" if doubt else " (it shows no certificate)"
        raise (HostKeyError if others else UnknownHostError)(
            f"the host key of {self._at} is not known: {shown} is not in {files}{note}",
            hint="compare it with the fingerprint the site publishes, then answer yes in a terminal, or "
            f"accept it once with --accept-new (of init and login) or with: {self._host.ssh_command}",
        )

    def _doubt(self, blob: bytes) -> str | None:
        """Why a certificate does not count; None when it does."""
        try:
            certificate = parse_certificate(blob)
        except ValueError as error:
            return str(error)
        if certificate.authority not in self._authorities:
            return f"{fingerprint(certificate.authority)} has signed it, whom no @cert-authority line names"
        name = self._host.host_key_alias or self._host.hostname
        return problem(certificate, host=name, now=time.time())

    def _refuse_revoked(self, key: bytes, certificate: bytes | None, shown: str) -> None:
        keys = {key: shown}
        if certificate is not None:
            with contextlib.suppress(ValueError):
                authority = parse_certificate(certificate).authority
                keys[authority] = f"its authority {fingerprint(authority)}"
        file = self._host.revoked_host_keys
        listed = _revoked_in(file, [*keys], certificate or key) if file is not None else set()
        for one, words in keys.items():
            if one in self._revoked or one in listed:
                raise HostKeyError(
                    f"the host key of {self._at} is marked as revoked: {words}",
                    hint="do not log in: ask the site's support",
                )

    @property
    def _at(self) -> str:
        return f"{self._host.alias} ({self._host.address})"


def _revoked_in(path: Path, keys: Sequence[bytes], shown: bytes) -> set[bytes]:
    """Which keys the file of RevokedHostKeys revokes: a list of public keys, or what `ssh-keygen -k` makes.

    Args:
        path: the file.
        keys: to look for.
        shown: the certificate, or the key where there is none; ssh-keygen looks at all of it.

    Raises:
        HostKeyError: the file cannot be read, so that any key may be revoked.
    """
    try:
        data = path.read_bytes()
        if not data.startswith(_BINARY_LIST):
            lines = [words for line in data.split(b"\n") if (words := _words(line))]
            listed = [_key(words) for words in lines]
            if None in listed:
                raise HostKeyError(f"RevokedHostKeys {path}: line {listed.index(None) + 1} is no public key")
            return {one[1] for one in listed if one is not None} & {*keys}
        size = int.from_bytes(shown[:4], "big")
        text = f"{shown[4 : 4 + size].decode('ascii', 'replace')} {base64.b64encode(shown).decode()}\n"
        argv = ["ssh-keygen", "-Q", "-f", str(path), "/dev/stdin"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise HostKeyError(f"RevokedHostKeys {path} cannot be read: {error}") from error
    return {*keys} if done.returncode != 0 else set()
