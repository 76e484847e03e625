"""Examines the login from this laptop: SSH's configuration, keys, kept logins, and one login."""

from __future__ import annotations

import shlex
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clusterkit.backends.checks import CheckPlace, Checks, Scope, Verdict, passed, warned
from clusterkit.checkup.examination import Examination, Result, fault
from clusterkit.errors import TransportError
from clusterkit.site import connected

if TYPE_CHECKING:
    from clusterkit.transport.resolve import HostConfig

_SLOW_LOGIN = 10.0
"""Seconds."""


@dataclass
class LoginTrial:
    """One login with what is known of it so far."""

    exam: Examination
    host: HostConfig | None = None
    """As `ssh -G` resolves it."""
    kept: bool = False
    """Whether a login that is kept open serves."""
    error: TransportError | None = None
    seconds: float = 0.0

    @property
    def resolved(self) -> HostConfig:
        """The host; the check `ssh-config` has passed."""
        assert self.host is not None
        return self.host

    def log_in(self) -> None:
        """Logs in; the error tells which step failed."""
        began = time.monotonic()
        self.exam.say(f"logging in to {self.exam.cluster.host}")
        try:
            connection = connected(self.exam.cluster, ask=self.exam.ask)
            self.exam.transport = self.exam.stack.enter_context(connection)
        except TransportError as error:
            self.error = error
        self.seconds = time.monotonic() - began


def log_in(exam: Examination) -> Iterator[Result]:
    """Checks SSH: configuration, keys, kept logins, and one login, whose error tells which step failed."""
    trial = LoginTrial(exam)
    yield from exam.make(CHECKS[:3], trial)
    if trial.host is not None:
        trial.log_in()
    yield from exam.make(CHECKS[3:], trial)


CHECKS = Checks[LoginTrial](CheckPlace.LAPTOP, "ssh-config")


@CHECKS.declare("settings", applies=Scope.remote)
def _ssh_config(trial: LoginTrial) -> Verdict:
    from clusterkit.transport.factory import choose
    from clusterkit.transport.resolve import resolve

    cluster = trial.exam.cluster
    trial.host = host = resolve(cluster.host or "", config=cluster.login_config)
    way = f" through {', '.join(host.proxy_jump)}" if host.proxy_jump else ""
    choice = choose(host, cluster.transport, keep=cluster.keep_login is not None)
    link = f"{choice.name}: {choice.why}"
    if choice.opened:
        choice.opened.close()
        link = f"{choice.name}, {choice.why}"
        trial.kept = True
    return passed(f"{cluster.host} is {host.user}@{host.address}{way}; logs in by {link}")


@CHECKS.declare(applies=Scope.remote)
def _ssh_key(trial: LoginTrial) -> Verdict:
    """Judges whether there are usable keys for the login; OpenSSH refuses a key that others may read."""
    from clusterkit.transport.keys import agent_keys

    exam, host = trial.exam, trial.resolved
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


@CHECKS.declare(applies=Scope.remote)
def _kept_login(trial: LoginTrial) -> Verdict:
    alive, stale = _kept_logins()
    if trial.exam.fix and stale:
        for path in stale:
            path.unlink(missing_ok=True)
        trial.exam.sheet.fixes["kept-login"] = f"removed {len(stale)} stale sockets"
        stale = []
    if stale:
        return warned(f"no answer at {', '.join(map(str, stale))}", "clusterkit logout")
    return passed(f"kept: {', '.join(alive)}" if alive else "none is kept; every command logs in")


@CHECKS.declare(applies=Scope.remote)
def _reachable(trial: LoginTrial) -> Verdict:
    from clusterkit.transport.faults import UnreachableError

    return fault(trial.error) if isinstance(trial.error, UnreachableError) else passed(trial.resolved.address)


@CHECKS.declare("reachable", applies=Scope.remote)
def _host_key(trial: LoginTrial) -> Verdict:
    from clusterkit.transport.known_hosts import HostKeyError, HostKeyVerdict, read

    if isinstance(trial.error, HostKeyError):
        return fault(trial.error)
    line = HostKeyVerdict(trial.resolved, read(trial.resolved.known_hosts)).known
    return passed(f"known by line {line.line} of {line.path}" if line else "it was accepted just now")


@CHECKS.declare("host-key", applies=Scope.remote)
def _login(trial: LoginTrial) -> Verdict:
    """Judges whether the first command over the connection succeeds."""
    if trial.error is not None:
        return fault(trial.error)
    assert trial.exam.transport is not None
    trial.exam.transport.run(["true"])
    how = "over a kept login" if trial.kept else "logged in"
    text = f"{how} as {trial.resolved.user} in {trial.seconds:.1f} s"
    if trial.seconds > _SLOW_LOGIN:
        return warned(text, "clusterkit login opens one login for all commands")
    return passed(text)


def _kept_logins() -> tuple[list[str], list[Path]]:
    """Returns the hosts of the logins that are kept, and the sockets at which nobody answers."""
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
