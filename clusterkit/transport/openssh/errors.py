"""What OpenSSH says when it cannot log in, as errors with a cause and a next step. ssh's own line is kept."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from clusterkit.errors import TransportError
from clusterkit.transport.faults import UnreachableError
from clusterkit.transport.known_hosts import HostKeyError, UnknownHostError
from clusterkit.transport.resolve import HostConfig

_NOISE = re.compile(r"^(?:\*\* |@{10,}|@ .*@$|Warning: Permanently added|debug\d: )")
_DENIED = re.compile(r"Permission denied \(([^)]*)\)|Too many authentication failures")
_CHANGED = re.compile(r"REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .* has changed")
_REVOKED = re.compile(r"is revoked|marked as revoked|REVOKED HOST KEY")
_UNKNOWN = re.compile(r"host key is known for|Host key verification failed|authenticity of host")
_FINGERPRINT = re.compile(r"SHA256:[A-Za-z0-9+/]+")
_CERTIFICATE = re.compile(r"[Cc]ertificate (?:invalid|has expired|.*not for this host).*")
_UNREACHABLE = (
    (r"Could not resolve hostname", "check the spelling, the ssh configuration and the network (a VPN?)"),
    (r"connect to (?:host|address)|Network is unreachable|No route", "check host, port and network (a VPN?)"),
    (
        r"banner exchange|kex_exchange_identification|Connection (?:closed|reset) by|timed out|UNKNOWN port",
        "check host and port; a server drops connections for a while after several failed logins",
    ),
)
_VALID = re.compile(r"^\s*Valid: from (\S+) to (\S+)", re.MULTILINE)
_SECONDS = 10.0


def explain(host: HostConfig, words: str, *, asked: bool = False) -> TransportError:
    """Returns the error for a login that ssh has given up.

    Args:
        host: where to.
        words: everything ssh has written to standard error.
        asked: whether it could ask on the terminal.
    """
    words = words.replace("\r", "")
    lines = [line.strip() for line in words.splitlines() if line.strip() and not _NOISE.match(line.strip())]
    line = lines[-1] if lines else "ssh gave no reason"
    where = f"{host.alias} ({host.address})"
    if _CHANGED.search(words) or _REVOKED.search(words):
        what = "is marked as revoked" if _REVOKED.search(words) else "has changed"
        shown = _FINGERPRINT.search(words)
        note = f": the server shows {shown[0]}" if shown else ""
        return HostKeyError(
            f"the host key of {where} {what}{note}; ssh says: {line}",
            hint="do not log in: ask the site's support"
            if _REVOKED.search(words)
            else f"someone may be listening; only if the site has announced a new key: {host.ssh_command} "
            "says which line of known_hosts to remove",
        )
    if _UNKNOWN.search(words):
        certificate = _CERTIFICATE.search(words)
        note = f" ({certificate[0].rstrip('.')})" if certificate else ""
        return UnknownHostError(
            f"the host key of {where} is not known{note}; ssh says: {line}",
            hint="compare it with the fingerprint the site publishes, then answer yes in a terminal, or "
            f"accept it once with --accept-new (`init`, `login`) or with: {host.ssh_command}",
        )
    denied = next((denial for text in reversed(lines) if (denial := _DENIED.search(text))), None)
    if denied:
        methods = (denied[1] or "").split(",")
        return TransportError(
            f"{where} refuses the login of {host.user}; ssh says: {denied.string}",
            hint=next(
                _cures(host, methods, asked), f"check user and key, or try by hand: {host.ssh_command}"
            ),
        )
    for pattern, hint in _UNREACHABLE:
        telling = next((text for text in reversed(lines) if re.search(pattern, text)), None)
        if (
            telling and "UNKNOWN port" in telling
        ):  # ssh keeps its jump host's words from a master that persists
            way = ", ".join(host.proxy_jump) or "the ProxyCommand"
            return UnreachableError(
                f"{where} cannot be reached through {way}; ssh says: {telling}",
                hint=f"to see what the host in between objects to: {host.ssh_command}",
            )
        if telling:
            return UnreachableError(f"{where} cannot be reached; ssh says: {telling}", hint=hint)
    return TransportError(f"ssh cannot log in to {where}: {line}", hint=f"try it by hand: {host.ssh_command}")


def _cures(host: HostConfig, methods: list[str], asked: bool) -> Iterator[str]:
    """Next steps for a login that was refused, the likeliest first."""
    for path in host.missing_keys:
        yield f"correct IdentityFile in the ssh configuration: {path} does not exist"
    for path in host.identity_files:
        certificate = Path(f"{path}-cert.pub")
        if certificate.is_file() and (ended := expired(certificate)):
            yield f"the certificate {certificate} has expired ({ended}): ask the site for a new one"
    if any(method.startswith("gssapi") for method in methods) and not has_ticket():
        yield "the server accepts Kerberos tickets, but you have none: run kinit, then try again"
    if {"keyboard-interactive", "password"} & {*methods}:
        yield (
            "a code works only once and only briefly: wait for the next one, then try again"
            if asked
            else "it asks for a password or a code: run the command, or `clusterkit login`, in a terminal"
        )


def expired(certificate: Path) -> str | None:
    """Returns when a user certificate has ended; None where it still counts, or does not say."""
    try:
        argv = ["ssh-keygen", "-L", "-f", str(certificate)]
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=_SECONDS, check=False)
        validity = _VALID.search(answer.stdout)
        return validity[2] if validity and datetime.fromisoformat(validity[2]) < datetime.now() else None
    except (OSError, ValueError, subprocess.SubprocessError):
        return None  # ssh-keygen is missing, or the certificate counts for ever


def has_ticket() -> bool:
    """Returns whether the user has a valid Kerberos ticket."""
    program = shutil.which("klist")
    if program is None:
        return bool(os.environ.get("KRB5CCNAME")) or Path(f"/tmp/krb5cc_{os.getuid()}").exists()  # noqa: S108
    try:
        return subprocess.run([program, "-s"], timeout=_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
