"""Where login keys come from: the agent and the identity files, in OpenSSH's order."""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.agent import AgentSSH

from clusterkit.errors import TransportError
from clusterkit.transport.known_hosts import fingerprint
from clusterkit.transport.questions import Ask, Prompt, Question
from clusterkit.transport.resolve import HostConfig

_PASSPHRASE_TRIES = 3


@dataclass(frozen=True)
class KeyOffer:
    """A key to offer to the server."""

    label: str
    key: paramiko.PKey | None
    """None: the file cannot be used, or its passphrase was not given."""


def offers(host: HostConfig, ask: Ask) -> Iterator[KeyOffer]:
    """Yields the keys to offer to a host, best first: the agent's, then files, last those with a passphrase.

    Lazy: a passphrase is asked for only once everything before has been refused. A certificate
    beside a file (`NAME-cert.pub`) is offered before the plain key.

    Raises:
        TransportError: a passphrase was wrong too often, or there is no terminal to ask on.
    """
    for path in host.missing_keys:
        yield KeyOffer(f"{path} (IdentityFile names it, and it does not exist)", None)
    files = [path for path in host.identity_files if path.is_file()]
    configured = {blob for path in files if (blob := _public_blob(path)) is not None}
    held = agent_keys(host)
    if host.identities_only:
        held = [key for key in held if key.asbytes() in configured]
    held.sort(key=lambda key: key.asbytes() not in configured)  # stable: the configured ones first
    for key in held:
        yield KeyOffer(f"agent key {fingerprint(key.asbytes())}", key)
    in_agent = {key.asbytes() for key in held}
    locked = []
    for path in files:
        if _public_blob(path) in in_agent:
            continue
        try:
            loaded = paramiko.PKey.from_path(path)
        except TypeError:  # how paramiko says that a passphrase is needed
            locked.append(path)
        except (ValueError, OSError, paramiko.SSHException) as error:
            yield KeyOffer(f"{path} (unusable: {error})", None)
        else:
            yield from _with_certificate(path, loaded)
    for path in locked:
        unlocked = _unlock(path, ask)
        if unlocked is None:
            yield KeyOffer(f"{path} (no passphrase)", None)
        else:
            yield from _with_certificate(path, unlocked)


def _with_certificate(path: Path, key: paramiko.PKey) -> Iterator[KeyOffer]:
    """Paramiko has loaded a certificate beside the file, and would then offer nothing else."""
    label = f"{path} {fingerprint(key.asbytes())}"
    if key.public_blob is not None:
        yield KeyOffer(f"{label} with its certificate", key)
        key.public_blob = None
    yield KeyOffer(label, key)


def _unlock(path: Path, ask: Ask) -> paramiko.PKey | None:
    """Asks for the passphrase; an empty answer passes the key over, as ssh does."""
    for _ in range(_PASSPHRASE_TRIES):
        question = Question("this machine", "", "", (Prompt(f"Passphrase for key {path}: ", echo=False),))
        (phrase,) = ask(question)
        if not phrase:
            return None
        with contextlib.suppress(ValueError, TypeError, paramiko.SSHException):
            # bytes, whatever the annotation says: cryptography takes nothing else
            return paramiko.PKey.from_path(path, phrase.encode())  # type: ignore[arg-type]
    raise TransportError(
        f"wrong passphrase for {path}, {_PASSPHRASE_TRIES} times",
        hint=f"check it with: ssh-keygen -y -f {path}",
    )


def _public_blob(path: Path) -> bytes | None:
    """Returns the public key beside a private one, if there is one; it tells which agent key is meant."""
    try:
        return base64.b64decode(Path(f"{path}.pub").read_text().split()[1], validate=True)
    except (OSError, IndexError, UnicodeDecodeError, binascii.Error):
        return None


def agent_keys(host: HostConfig) -> list[paramiko.PKey]:
    """Returns the keys that the host's agent holds; none where no agent answers."""
    path = host.identity_agent or os.environ.get("SSH_AUTH_SOCK")
    if not path or path == "none":
        return []
    agent = AgentSSH()
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        agent._connect(connection)  # type: ignore[attr-defined]
    except (OSError, paramiko.SSHException):
        connection.close()
        return []  # no agent there: ssh carries on, and so do we
    return list(agent.get_keys())
