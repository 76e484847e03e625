"""The one way to another machine: a host name gives ssh, by paramiko or by OpenSSH.

paramiko, in this process, logs in to plain hosts by key, agent, password or code, because it starts soonest;
OpenSSH does what paramiko cannot, and holds what is to stay open. A connection that has died is replaced by a
new login: patient with the network, and without a question.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from clusterkit.errors import TransportError
from clusterkit.transport.base import Transport
from clusterkit.transport.questions import Ask, Question, TerminalQuestion, ask_on_terminal

if TYPE_CHECKING:
    from clusterkit.transport.link import Link
    from clusterkit.transport.openssh.link import OpensshLink
    from clusterkit.transport.resolve import HostConfig

__all__ = ["Ask", "connect"]

Wanted = Literal["auto", "paramiko", "openssh"]

PAUSES = (0.0, 1.0, 3.0, 9.0, 27.0)
"""Seconds before each try to log in again: until a Wi-Fi has changed, or a login node has come back."""
_GIVE_UP_SECONDS = 45.0
"""No further try after that; a host that swallows everything takes its time with each."""


def connect(
    host: str,
    *,
    ask: Ask | None = None,
    ssh_config: Path | Callable[[], Path | None] | None = None,
    login_shell: bool = False,
    keep: int | None = None,
    wanted: Wanted = "auto",
) -> Transport:
    """Returns an open transport to `host`, after exactly one login.

    Args:
        host: what one would type after `ssh`: an alias, `user@host` or `ssh://user@host:port`.
        ask: answers the login's questions (passwords, codes, passphrases), in the calling thread.
            None asks on the terminal, or fails with a clear error where there is none.
        ssh_config: used instead of ~/.ssh/config and /etc/ssh/ssh_config; or what finds it at each login.
        login_shell: run every command through `bash -lc`, for sites that set PATH only there.
        keep: let OpenSSH hold the login for later commands, until none has come for so many seconds.
        wanted: what logs in.

    Raises:
        TransportError: the host cannot be resolved, reached or trusted, or refuses the login.
    """
    from clusterkit.transport.ssh import SshTransport

    ask = ask or ask_on_terminal

    def log_in(answer: Ask, keep: int | None = None) -> Link:
        from clusterkit.transport.resolve import resolve

        config = ssh_config() if callable(ssh_config) else ssh_config
        return _log_in(resolve(host, config=config), answer, keep, wanted)

    def again(why: str | None) -> Link:
        return _log_in_again(log_in, where=host, why=why, tell=ask)

    return SshTransport(log_in(ask, keep), where=host, login_shell=login_shell, again=again)


@dataclass(frozen=True)
class LinkChoice:
    """What carries a login."""

    openssh: bool
    why: str
    optional: bool = False
    """Whether paramiko would do, without what is wished for."""
    opened: OpensshLink | None = None
    """A connection over a master that is open already; to be closed."""

    @property
    def name(self) -> str:
        """As `transport` of a cluster spells it."""
        return "openssh" if self.openssh else "paramiko"


def choose(host: HostConfig, wanted: Wanted, *, keep: bool) -> LinkChoice:
    """Chooses what logs in to a host: a master of OpenSSH that is open, else what the host needs.

    Args:
        host: where to.
        wanted: `transport` of the cluster.
        keep: whether the login shall be kept for later commands.
    """
    from clusterkit.transport.openssh import kept

    if wanted != "paramiko" and (link := kept.find(host)):
        return LinkChoice(True, f"over the open connection {link.path}", opened=link)
    if wanted != "auto":
        return LinkChoice(wanted == "openssh", f'transport = "{wanted}"')
    reason = _beyond_paramiko(host)
    if keep and reason is None:
        return LinkChoice(True, "the login is to be kept open", optional=True)
    return LinkChoice(reason is not None, reason or "nothing requires OpenSSH")


def _beyond_paramiko(host: HostConfig) -> str | None:
    """Returns what of a host's configuration only OpenSSH does; None when nothing."""
    from clusterkit.transport.known_hosts import HostKeyVerdict, read

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
    """Returns whether a key lives in hardware (FIDO); its public file begins with its type."""
    try:
        return Path(f"{path}.pub").read_text("utf-8", "replace").startswith("sk-")
    except OSError:
        return False


def _log_in(host: HostConfig, ask: Ask, keep: int | None, wanted: Wanted) -> Link:
    choice = choose(host, wanted, keep=keep is not None)
    if choice.opened:
        return choice.opened
    if not choice.openssh:
        return _by_paramiko(host, ask)
    from clusterkit.transport.openssh import master

    try:
        return master.start(host, keep=keep, ask=ask)
    except master.NoMasterError as error:
        if not choice.optional:
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
    sock = dial(host)  # the server greets while paramiko is imported
    with _without_invoke():
        from clusterkit.transport.connection import Connection

    return Connection.open_to(host, sock, ask=ask)


def dial(host: HostConfig) -> socket.socket:
    """Returns a TCP connection to a host.

    Raises:
        UnreachableError: there is no such name, or nothing answers there.
    """
    from clusterkit.transport.faults import UnreachableError

    try:
        return socket.create_connection((host.hostname, host.port), host.connect_timeout)
    except socket.gaierror as error:
        alias = f" (for {host.alias})" if host.alias != host.hostname else ""
        raise UnreachableError(
            f"the host name {host.hostname}{alias} cannot be resolved: {error.strerror}",
            hint="check the spelling, the ssh configuration and the network (is a VPN needed?)",
        ) from error
    except TimeoutError as error:
        raise UnreachableError(
            f"{host.alias} ({host.address}) does not answer: no connection within {host.connect_timeout:g} s",
            hint="check the network (is a VPN needed?) and the host's status page",
        ) from error
    except OSError as error:
        raise UnreachableError(
            f"{host.alias} ({host.address}) cannot be reached: {error.strerror or error}",
            hint="check the host, port and network (is a VPN needed? is the machine down?)",
        ) from error


@contextmanager
def _without_invoke() -> Iterator[None]:
    """Makes an import of paramiko inside take half the time.

    Its reader of ssh_config imports `invoke`, and with it asyncio, unittest.mock and a YAML library, for the
    `Match exec` lines that only `ssh -G` reads here (see `resolve`). Paramiko itself does without where
    invoke is not installed, which is what it finds here.
    """
    if "paramiko" in sys.modules or "invoke" in sys.modules:
        yield
        return
    sys.modules["invoke"] = None  # type: ignore[assignment]  # the import system's own sign for "not there"
    try:
        yield
    finally:
        del sys.modules["invoke"]


def _log_in_again(log_in: Callable[[Ask], Link], *, where: str, why: str | None, tell: Ask) -> Link:
    """Returns a new connection in the place of a dead one.

    Args:
        log_in: logs in, with what answers its questions.
        where: the machine's name for messages.
        why: the last connection died.
        tell: is told of the new login; asked nothing.

    Raises:
        TransportError: the host cannot be reached in time, refuses the login, or asks something.
    """
    from clusterkit.transport.faults import UnreachableError

    died = f"the connection to {where} died ({why or 'the server or the network ended it'})"
    problem: TransportError | None = None
    began = time.monotonic()
    for pause in PAUSES:
        if time.monotonic() - began + pause > _GIVE_UP_SECONDS:
            break
        time.sleep(pause)
        try:
            link = log_in(_answer_nothing)
        except UnreachableError as error:
            problem = error
        except TransportError as error:
            problem = error
            break
        else:
            tell(Question(where, "", f"{died}; logged in again.", ()))
            return link
    raise TransportError(
        f"{died}, and logging in again failed: {problem.cause if problem else 'none was tried'}",
        hint="run the same command again; nothing is done twice",
    ) from problem


def _answer_nothing(question: Question) -> Sequence[str]:
    if question.prompts and not isinstance(question, TerminalQuestion):
        raise TransportError(f"{question.where} asks for {question.wanted!r}")
    return ()
