"""The one way to a transport: a host name gives ssh, no host gives this machine."""

from __future__ import annotations

from pathlib import Path

from clusterkit.transport.base import Transport
from clusterkit.transport.local import LocalTransport
from clusterkit.transport.questions import Ask

__all__ = ["Ask", "connect"]


def connect(
    host: str | None,
    *,
    ask: Ask | None = None,
    ssh_config: Path | None = None,
    login_shell: bool = False,
) -> Transport:
    """An open transport to `host`, after exactly one login; to this machine when `host` is None.

    Args:
        host: what one would type after `ssh`: an alias, `user@host` or `ssh://user@host:port`.
        ask: answers the login's questions (passwords, codes, passphrases), in the calling thread.
            None asks on the terminal, or fails with a clear error where there is none.
        ssh_config: used instead of ~/.ssh/config and /etc/ssh/ssh_config.
        login_shell: run every command through `bash -lc`, for sites that set PATH only there.

    Raises:
        TransportError: the host cannot be resolved, reached or trusted, or refuses the login.
    """
    if host is None:
        return LocalTransport()
    from clusterkit.transport.ssh import SshTransport  # paramiko takes 0.2 s to import

    return SshTransport.open(host, ask=ask, ssh_config=ssh_config, login_shell=login_shell)
