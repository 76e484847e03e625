"""Who a server must be: known_hosts files read and written as OpenSSH does, and everyone else refused.

A host of which no key is known at all may be accepted: its fingerprint is shown, and a person asked.

Own reader, because a single `@revoked` or `@cert-authority` line makes paramiko's drop the whole
file, and it matches no wildcards. Format: sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport.questions import Ask, HostKeyQuestion, Prompt, Question
from clusterkit.transport.resolve import SSH_PORT, HostConfig

_RSA_SIGNATURES = ("rsa-sha2-512", "rsa-sha2-256")
_TRIES = 3
_LONGEST_PATTERN = 1022
"""Bytes; OpenSSH gives up a line at a longer one."""


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
        """Returns whether this line is about `name`, a host or `[host]:port`."""
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
    return hmac.compare_digest(hashed, _hashed(name, salt))


def _hashed(name: bytes, salt: bytes) -> bytes:
    return b"|1|" + base64.b64encode(salt) + b"|" + base64.b64encode(hmac.digest(salt, name, "sha1"))


def parse(data: bytes, path: Path) -> list[KnownHost]:
    """Returns the entries of a known_hosts file; comments and damaged lines are passed over, as OpenSSH does.

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
    """Returns the words of a line, which ends at a zero byte; none of a comment."""
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
    """Returns the entries of all files that exist.

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
    """Returns a key's fingerprint as `ssh-keygen -l` prints it."""
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
        self.certified = any(entry.marker == "@cert-authority" for entry in (*own, *more))
        """Whether an authority's certificates count for this host, which only OpenSSH can check."""

    @property
    def known(self) -> KnownHost | None:
        """The first line about this host; None where it is not known, or only by an authority."""
        return next(iter(self._keys), None)

    @property
    def algorithms(self) -> list[str]:
        """Host key algorithms to ask for first, so that the server shows what we know."""
        types = dict.fromkeys(entry.key_type for entry in self._keys)
        return [name for kind in types for name in (_RSA_SIGNATURES if kind == "ssh-rsa" else (kind,))]

    def check(self, key_type: str, key: bytes) -> None:
        """Accepts what the server has shown, or raises.

        Args:
            key_type: of the key.
            key: the public key.

        Raises:
            UnknownHostError: no key of this host is known.
            HostKeyError: the key is another one than expected, or revoked.
        """
        shown = f"{key_type} {fingerprint(key)}"
        if key in self._revoked:
            raise HostKeyError(
                f"the host key of {self._at} is marked as revoked: {shown}",
                hint="do not log in: ask the site's support",
            )
        if any(entry.key == key for entry in self._keys):
            return
        same_type = [entry for entry in self._own if entry.key_type == key_type]
        if same_type:
            expected = same_type[0]
            raise HostKeyError(
                f"the host key of {self._at} has changed: the server shows {shown}, "
                f"and {expected.path} line {expected.line} says {fingerprint(expected.key)}",
                hint="someone may be listening; only if the site has announced a new key: "
                f"ssh-keygen -R '{self.name}' -f {expected.path}, then {self._host.ssh_command}",
            )
        files = " or ".join(str(path) for path in self._host.known_hosts) or "any known_hosts file"
        others = sorted({entry.key_type for entry in self._own})
        note = f" (known there: {', '.join(others)})" if others else ""
        raise (HostKeyError if others else UnknownHostError)(
            f"the host key of {self._at} is not known: {shown} is not in {files}{note}",
            hint="compare it with the fingerprint the site publishes, then answer yes in a terminal, or "
            f"accept it once with --accept-new (`init`, `login`) or with: {self._host.ssh_command}",
        )

    @property
    def _at(self) -> str:
        return f"{self._host.alias} ({self._host.address})"


def accept(host: HostConfig, verdict: HostKeyVerdict, key_type: str, key: bytes, ask: Ask) -> None:
    """Accepts the key a server has shown, asks about it where it is the first one, or raises.

    Raises:
        TransportError: the key is not the expected one, or nobody wants to accept it.
    """
    try:
        verdict.check(key_type, key)
    except UnknownHostError as unknown:
        where = f"{host.user}@{host.alias.rpartition('@')[2]}"
        shown = f"{unknown.cause}."
        if host.new_host_keys == "refuse" or (
            host.new_host_keys == "ask" and not _agreed(where, shown, fingerprint(key), ask)
        ):
            raise
        if host.new_host_keys == "accept":
            ask(Question(where, "", f"{shown} Accepted because of StrictHostKeyChecking.", ()))
        problem = _remember(host, verdict.name, key_type, key)
        if problem:
            ask(Question(where, "", f"The key could not be saved: {problem}", ()))


def _agreed(where: str, shown: str, right: str, ask: Ask) -> bool:
    """Returns whether a person says yes, or pastes the fingerprint that the site publishes."""
    prompt = Prompt("Is it the key that the site publishes? (yes, no, or its fingerprint): ", echo=True)
    for _ in range(_TRIES):
        (answer,) = ask(HostKeyQuestion(where, "", shown, (prompt,)))
        if answer.strip().lower() == "yes" or answer.strip() == right:
            return True
        if answer.strip().lower() == "no":
            return False
    return False


def _remember(host: HostConfig, name: str, key_type: str, key: bytes) -> str | None:
    """Appends the key to the first known_hosts file. Returns why that was not possible."""
    if not host.known_hosts:
        return "there is no known_hosts file to write to"
    path = host.known_hosts[0]
    names = _hashed(os.fsencode(name.lower()), os.urandom(20)).decode() if host.hash_known_hosts else name
    line = f"{names} {key_type} {base64.b64encode(key).decode()}\n"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "rb+", buffering=0) as file:
            if _lacks_newline(path):
                line = "\n" + line
            file.write(line.encode())
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


def _lacks_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seekable() or file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
