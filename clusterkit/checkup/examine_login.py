"""Examines the login from this laptop: SSH's configuration, keys, kept logins, and one login."""

from __future__ import annotations

import shlex
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.checks import Verdict, passed, warned
from clusterkit.checkup.check import Result, fault
from clusterkit.checkup.examination import Examination
from clusterkit.errors import TransportError
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.transport.resolve import HostConfig

_SLOW_LOGIN = 10.0
"""Seconds."""


def log_in(exam: Examination, stack: ExitStack) -> Iterator[Result]:
    """Check SSH: configuration, keys, kept logins, and one login, whose error tells which step failed.

    The check `login` itself is made by the first command over the connection.
    """
    from clusterkit.transport.factory import choose
    from clusterkit.transport.faults import UnreachableError
    from clusterkit.transport.known_hosts import HostKeyError, read
    from clusterkit.transport.known_hosts import HostKeyVerdict as KnownHosts
    from clusterkit.transport.resolve import resolve

    found: list[HostConfig] = []
    over: list[Path] = []
    cluster = exam.cluster
    assert cluster.host is not None

    def config() -> Verdict:
        found.append(host := resolve(cluster.host or "", config=cluster.login_config))
        way = f" through {', '.join(host.proxy_jump)}" if host.proxy_jump else ""
        choice = choose(host, cluster.transport, keep=cluster.keep_login is not None)
        link = f"{choice.name}: {choice.why}"
        if choice.opened:
            choice.opened.close()
            link = f"{choice.name}, {choice.why}"
            over.append(choice.opened.path)
        return passed(f"{cluster.host} is {host.user}@{host.address}{way}; logs in by {link}")

    yield from exam.note("ssh-config", config)
    yield from exam.note("ssh-key", lambda: _ssh_key(exam, found[0]))
    alive, stale = _kept_logins()
    if exam.fix and stale:
        for path in stale:
            path.unlink(missing_ok=True)
        exam.sheet.fixes["kept-login"] = f"removed {len(stale)} stale sockets"
        stale = []

    def kept_login() -> Verdict:
        if stale:
            return warned(f"no answer at {', '.join(map(str, stale))}", "clusterkit logout")
        return passed(f"kept: {', '.join(alive)}" if alive else "none is kept; every command logs in")

    yield from exam.note("kept-login", kept_login)
    if not found:
        for name in ("reachable", "host-key", "login"):
            yield from exam.note(name, lambda: passed(""))  # skipped, as ssh-config has failed
        return
    (host,) = found
    error, began = None, time.monotonic()
    exam.say(f"logging in to {cluster.host}")
    try:
        exam.transport = stack.enter_context(connected(cluster, ask=exam.ask))
    except TransportError as trouble:
        error = trouble
    seconds = time.monotonic() - began

    def step(kind: type[TransportError], text: str) -> Verdict:
        return fault(error) if isinstance(error, kind) else passed(text)

    yield from exam.note("reachable", lambda: step(UnreachableError, host.address))

    def host_key() -> Verdict:
        known = KnownHosts(host, read(host.known_hosts)).known
        where = f"known by line {known.line} of {known.path}" if known else "it was accepted just now"
        return step(HostKeyError, where)

    yield from exam.note("host-key", host_key)

    def login() -> Verdict:
        if error is not None:
            return fault(error)
        assert exam.transport is not None
        exam.transport.run(["true"])
        how = "over a kept login" if over else "logged in"
        text = f"{how} as {host.user} in {seconds:.1f} s"
        if seconds > _SLOW_LOGIN:
            return warned(text, "clusterkit login opens one login for all commands")
        return passed(text)

    yield from exam.note("login", login)


def _kept_logins() -> tuple[list[str], list[Path]]:
    """The hosts of the logins that are kept, and the sockets at which nobody answers."""
    from clusterkit.transport.openssh import kept
    from clusterkit.transport.openssh.link import OpensshLink

    alive, stale = [], []
    for path in kept.socket_paths():
        try:
            OpensshLink(path).close()
        except (EOFError, ValueError, ConnectionRefusedError):
            stale.append(path)
        except OSError:
            continue  # it is busy, or not ours
        else:
            noted = kept.kept_for(path)
            alive.append(noted.host if noted else path.name)
    return alive, stale


def _ssh_key(exam: Examination, host: HostConfig) -> Verdict:
    """Whether there are usable keys for the login; OpenSSH refuses a key that others may read."""
    from clusterkit.transport.keys import agent_keys

    keys = [path for path in host.identity_files if path.is_file()]
    wide = {path: mode for path in keys if (mode := stat.S_IMODE(path.stat().st_mode)) & 0o077}
    if exam.fix and wide:
        try:
            for path, mode in wide.items():
                path.chmod(mode & 0o700)
        except OSError as error:
            return warned(
                f"{error.filename} cannot be made private: {error.strerror}",
                "change its mode by hand (chmod)",
            )
        exam.sheet.fixes["ssh-key"] = f"chmod go= {' '.join(map(str, wide))}"
        wide = {}
    if wide:
        path, mode = next(iter(wide.items()))
        return warned(
            f"{path} may be read by others (mode {mode:o}): ssh refuses such a key",
            f"chmod 600 {shlex.quote(str(path))}",
        )
    in_agent = len(agent_keys(host))
    if not keys and not in_agent:
        return warned("no key file and no agent: each login asks for a password", "ssh-keygen -t ed25519")
    return passed(", ".join([*map(str, keys), *([f"{in_agent} in the agent"] if in_agent else [])]))
