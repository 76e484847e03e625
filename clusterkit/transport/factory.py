"""The one way to a transport: a host name gives ssh, no host gives this machine."""

from __future__ import annotations

from pathlib import Path

from clusterkit.transport.base import Transport
from clusterkit.transport.link import Link
from clusterkit.transport.local import LocalTransport
from clusterkit.transport.questions import Ask, ask_on_terminal

__all__ = ["Ask", "connect"]


def connect(
    host: str | None,
    *,
    ask: Ask = ask_on_terminal,
    ssh_config: Path | None = None,
    login_shell: bool = False,
) -> Transport:
    """An open transport to `host`, after exactly one login; to this machine when `host` is None.

    Args:
        host: what one would type after `ssh`: an alias, `user@host` or `ssh://user@host:port`.
        ask: answers the login's questions (passwords, codes, passphrases), in the calling thread.
            Left out, it asks on the terminal, or fails with a clear error where there is none.
        ssh_config: used instead of ~/.ssh/config and /etc/ssh/ssh_config.
        login_shell: run every command through `bash -lc`, for sites that set PATH only there.

    Raises:
        TransportError: the host cannot be resolved, reached or trusted, or refuses the login.
    """
    if host is None:
        return LocalTransport()
    from clusterkit.transport.reconnect import log_in_again
    from clusterkit.transport.ssh import SshTransport

    def log_in(answer: Ask) -> Link:
        from clusterkit.transport.connection import Connection  # paramiko takes 0.2 s to import

        return Connection.open_to(host, ask=answer, ssh_config=ssh_config)

    def again(why: str | None) -> Link:
        return log_in_again(log_in, where=host, why=why, tell=ask)

    return SshTransport(log_in(ask), where=host, login_shell=login_shell, again=again)
