"""A host key that nobody knows yet: show its fingerprint, ask, and write it down as OpenSSH does.

Only a host of which no key is known at all gets this far; a changed key is refused in `known_hosts`.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

import paramiko

from clusterkit.transport.known_hosts import HostKeyVerdict, UnknownHostError, fingerprint
from clusterkit.transport.questions import Ask, HostKeyQuestion, Prompt, Question
from clusterkit.transport.resolve import HostConfig

_TRIES = 3


def check(host: HostConfig, verdict: HostKeyVerdict, shown_key: paramiko.PKey, ask: Ask) -> None:
    """Accept the key a server has shown, ask about it where it is the first one, or raise.

    Raises:
        TransportError: the key is not the expected one, or nobody wants to accept it.
    """
    key_type, key = shown_key.get_name(), shown_key.asbytes()
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
    """Whether a person says yes, or pastes the fingerprint that the site publishes."""
    prompt = Prompt("Is it the key that the site publishes? (yes, no, or its fingerprint): ", echo=True)
    for _ in range(_TRIES):
        (answer,) = ask(HostKeyQuestion(where, "", shown, (prompt,)))
        if answer.strip().lower() == "yes" or answer.strip() == right:
            return True
        if answer.strip().lower() == "no":
            return False
    return False


def _remember(host: HostConfig, name: str, key_type: str, key: bytes) -> str | None:
    """Append the key to the first known_hosts file. Returns why that was not possible."""
    if not host.known_hosts:
        return "there is no known_hosts file to write to"
    path = host.known_hosts[0]
    names = paramiko.HostKeys.hash_host(name.lower()) if host.hash_known_hosts else name
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
