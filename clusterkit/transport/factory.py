"""The one way to a transport: a host name gives ssh, no host gives this machine.

A login that a background process keeps is used where there is one; nothing here fails because of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.transport.base import Transport
from clusterkit.transport.questions import Ask, Question, ask_on_terminal

if TYPE_CHECKING:
    from clusterkit.transport.link import Link

__all__ = ["Ask", "connect", "kept_link"]


def connect(
    host: str | None,
    *,
    ask: Ask = ask_on_terminal,
    ssh_config: Path | None = None,
    login_shell: bool = False,
    keep: float | None = None,
) -> Transport:
    """An open transport to `host`, after exactly one login; to this machine when `host` is None.

    Args:
        host: what one would type after `ssh`: an alias, `user@host` or `ssh://user@host:port`.
        ask: answers the login's questions (passwords, codes, passphrases), in the calling thread.
            Left out, it asks on the terminal, or fails with a clear error where there is none.
        ssh_config: used instead of ~/.ssh/config and /etc/ssh/ssh_config.
        login_shell: run every command through `bash -lc`, for sites that set PATH only there.
        keep: let a background process hold the login for later commands, until none has come for so
            many seconds. A login that is kept already is used in any case.

    Raises:
        TransportError: the host cannot be resolved, reached or trusted, or refuses the login.
    """
    if host is None:
        from clusterkit.transport.local import LocalTransport

        return LocalTransport()
    from clusterkit.transport.dial import dial, without_invoke
    from clusterkit.transport.reconnect import log_in_again
    from clusterkit.transport.ssh import SshTransport

    def log_in(answer: Ask) -> Link:
        dialled = dial(host, config=ssh_config)
        with without_invoke():
            from clusterkit.transport.connection import Connection

        return Connection.open_to(host, ask=answer, ssh_config=ssh_config, dialled=dialled)

    def again(why: str | None) -> Link:
        return log_in_again(log_in, where=host, why=why, tell=ask)

    link = kept_link(host, ask=ask, ssh_config=ssh_config, keep=keep) or log_in(ask)
    return SshTransport(link, where=host, login_shell=login_shell, again=again)


def kept_link(
    host: str, *, ask: Ask = ask_on_terminal, ssh_config: Path | None = None, keep: float | None = None
) -> Link | None:
    """The kept login to a host; None where there is none, or none can be kept.

    Args:
        host: as for `connect`.
        ask: answers the questions of a new login, and is told where none can be kept.
        ssh_config: as for `connect`.
        keep: make one where there is none, for so many seconds without a command.

    Raises:
        TransportError: a new login was to be made, and was refused.
    """
    from clusterkit.transport.kept.client import find
    from clusterkit.transport.kept.folder import socket_name, socket_paths
    from clusterkit.transport.resolve import resolve

    paths = socket_paths()
    if not paths and keep is None:
        return None
    name = socket_name(resolve(host, config=ssh_config))
    link = next((found for path in paths if path.name == name and (found := find(path))), None)
    if link is not None or keep is None:
        return link
    from clusterkit.transport.kept.start import NotKeptError, start

    try:
        return start(name, host=host, ssh_config=ssh_config, keep=keep, ask=ask)
    except NotKeptError as error:
        ask(Question(host, "", f"The login to {host} is not kept: {error}.", ()))
        return None
