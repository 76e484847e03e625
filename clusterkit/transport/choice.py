"""Which of the two carries a login: paramiko in this process, or OpenSSH; and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from clusterkit.transport.known_hosts import HostKeyVerdict, read
from clusterkit.transport.resolve import HostConfig

Wanted = Literal["auto", "paramiko", "openssh"]


@dataclass(frozen=True)
class LinkChoice:
    """What carries a login."""

    openssh: bool
    why: str
    optional: bool = False
    """Whether the other one would do, without what is wished for."""

    @property
    def name(self) -> str:
        """As `transport` of a cluster spells it."""
        return "openssh" if self.openssh else "paramiko"


def choose(host: HostConfig, wanted: Wanted, *, keep: bool) -> LinkChoice:
    """Choose what logs in to a host. A master that is open already has been looked for before.

    Args:
        host: where to.
        wanted: `transport` of the cluster.
        keep: whether the login shall be kept for later commands.
    """
    if wanted != "auto":
        return LinkChoice(wanted == "openssh", f'transport = "{wanted}"')
    reason = _beyond_paramiko(host)
    if keep and reason is None:
        return LinkChoice(True, "the login is to be kept open", optional=True)
    return LinkChoice(reason is not None, reason or "nothing requires OpenSSH")


def _beyond_paramiko(host: HostConfig) -> str | None:
    """What of a host's configuration only OpenSSH does; None when nothing."""
    if host.openssh_only:
        return f"the ssh configuration sets {', '.join(host.openssh_only)}"
    if key := next((path for path in host.identity_files if _is_security_key(path)), None):
        return f"{key} is a security key"
    if HostKeyVerdict(host, read(host.known_hosts)).certified:
        return "a @cert-authority line in known_hosts applies to it"
    if host.kerberos:
        from clusterkit.transport.openssh.errors import has_ticket

        if has_ticket():
            return "GSSAPIAuthentication is on, and there is a Kerberos ticket"
    return None


def _is_security_key(path: Path) -> bool:
    """Whether a key lives in hardware (FIDO); its public file begins with its type."""
    try:
        return Path(f"{path}.pub").read_text("utf-8", "replace").startswith("sk-")
    except OSError:
        return False
