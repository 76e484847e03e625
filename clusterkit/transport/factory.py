"""The one way to a transport: a host name gives ssh, by paramiko or by OpenSSH; no host gives this machine.

A master of OpenSSH that is open is used in any case, unless the cluster wants paramiko; nothing here fails
because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.errors import TransportError
from clusterkit.transport.base import Transport
from clusterkit.transport.questions import Ask, Question, ask_on_terminal

if TYPE_CHECKING:
    from clusterkit.transport.choice import Wanted
    from clusterkit.transport.link import Link
    from clusterkit.transport.resolve import HostConfig

__all__ = ["Ask", "connect"]


def connect(
    host: str | None,
    *,
    ask: Ask = ask_on_terminal,
    ssh_config: Path | Callable[[], Path | None] | None = None,
    login_shell: bool = False,
    keep: int | None = None,
    wanted: Wanted = "auto",
) -> Transport:
    """An open transport to `host`, after exactly one login; to this machine when `host` is None.

    Args:
        host: what one would type after `ssh`: an alias, `user@host` or `ssh://user@host:port`.
        ask: answers the login's questions (passwords, codes, passphrases), in the calling thread.
            Left out, it asks on the terminal, or fails with a clear error where there is none.
        ssh_config: used instead of ~/.ssh/config and /etc/ssh/ssh_config; or what finds it at each login.
        login_shell: run every command through `bash -lc`, for sites that set PATH only there.
        keep: let OpenSSH hold the login for later commands, until none has come for so many seconds.
        wanted: what logs in.

    Raises:
        TransportError: the host cannot be resolved, reached or trusted, or refuses the login.
    """
    if host is None:
        from clusterkit.transport.local import LocalTransport

        return LocalTransport()
    from clusterkit.transport.reconnect import log_in_again
    from clusterkit.transport.resolve import resolve
    from clusterkit.transport.ssh import SshTransport

    def log_in(answer: Ask, keep: int | None = None) -> Link:
        config = ssh_config() if callable(ssh_config) else ssh_config
        return _log_in(resolve(host, config=config), answer, keep, wanted)

    def again(why: str | None) -> Link:
        return log_in_again(log_in, where=host, why=why, tell=ask)

    return SshTransport(log_in(ask, keep), where=host, login_shell=login_shell, again=again)


def _log_in(host: HostConfig, ask: Ask, keep: int | None, wanted: Wanted) -> Link:
    from clusterkit.transport.choice import choose
    from clusterkit.transport.openssh import kept

    if wanted != "paramiko" and (link := kept.find(host)):
        return link
    choice = choose(host, wanted, keep=keep is not None)
    if choice.openssh:
        from clusterkit.transport.openssh import master

        try:
            return master.start(host, keep=keep, ask=ask)
        except master.NoMasterError as error:
            if wanted == "openssh" or not choice.optional:
                raise TransportError(
                    f"OpenSSH cannot log in to {host.alias}: {error}; OpenSSH is used because {choice.why}",
                    hint="install OpenSSH's client: apt install openssh-client, dnf install openssh-clients",
                ) from error
            ask(Question(host.alias, "", f"The login to {host.alias} is not kept: {error}.", ()))
    return _by_paramiko(host, ask)


def _by_paramiko(host: HostConfig, ask: Ask) -> Link:
    if host.openssh_only:
        raise TransportError(
            f"the ssh configuration of {host.alias} sets {', '.join(host.openssh_only)}, which paramiko does "
            "not support",
            hint='set transport = "auto" or "openssh" for the cluster',
        )
    from clusterkit.transport.dial import dial, without_invoke

    sock = dial(host)  # the server greets while paramiko is imported
    with without_invoke():
        from clusterkit.transport.connection import Connection

    return Connection.open_to(host, sock, ask=ask)
