"""Judges the login node. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit.backends.checks import Answer, Verdict, failed, passed, warned
from clusterkit.checkup.laptop import rsync_version
from clusterkit.probes.framing import TIME_UP

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

_SKEWED, _WRONG = 30, 300
"""Seconds of skew: worth a warning; munge, Kerberos and one-time codes fail."""


@dataclass(frozen=True)
class Login:
    """The login node's answer."""

    cluster: Cluster
    answer: Answer
    here: float
    """This machine's clock at the time of the answer, Unix seconds."""

    def about(self, key: str) -> str:
        """A fact, e.g. `user` or `root`."""
        return self.answer["about"].value(key)


def shell_quiet(login: Login) -> Verdict:
    """Whether the shell's start-up files print nothing, which would precede every answer."""
    part, shell = login.answer["shell"], login.about("shell")
    if part.status == TIME_UP:
        return failed(
            f"{shell} does not get through its start-up files", "see what ~/.bashrc there waits for"
        )
    if part.text:
        guard = "begin ~/.bashrc there with: case $- in *i*) ;; *) return ;; esac"
        return warned(f"{shell} prints {part.lines[0].strip()[:80]!r} without a terminal", guard)
    return passed(f"{shell} says nothing")


def clock(login: Login) -> Verdict:
    """Whether its clock agrees with this machine's."""
    return skew(login.about("now"), login.here, "this machine's")


def skew(there: str, here: float, whose: str) -> Verdict:
    """The verdict on two clocks."""
    if not there.isdigit():
        return warned("it does not tell its time", "date +%s")
    seconds = int(there) - here
    text = f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} {whose}"
    if abs(seconds) >= _WRONG:
        return failed(text, "set the clock that is wrong by NTP: timedatectl set-ntp true")
    if abs(seconds) >= _SKEWED:
        return warned(text, "set the clock that is wrong by NTP: timedatectl set-ntp true")
    return passed(f"agrees with {whose}")


def tools(login: Login) -> Verdict:
    """Whether the tools of a POSIX system, and a few more, are present."""
    missing = login.answer["tools"].text.split()
    if missing:
        return failed(
            f"missing: {', '.join(missing)}", "set `login_shell = true`, or ask for them to be installed"
        )
    return passed("all there")


def rsync_there(login: Login) -> Verdict:
    """Whether rsync is recent enough."""
    return rsync_version(login.answer["rsync"].text, login.about("host"))


def runtime_there(login: Login) -> Verdict:
    """The container runtime on the login node, which only builds and `shell` need."""
    part, runtime = login.answer["runtime"], login.cluster.container
    if part.status == 0:
        return passed(part.lines[-1] if part.lines else runtime)
    return warned(
        f"no {runtime} on {login.about('host')}: {part.last}; the nodes may have it all the same",
        f"add what provides it to `prelude` of [clusters.{login.cluster.name}], e.g. module load {runtime}",
    )


JUDGES: Mapping[str, Callable[[Login], Verdict]] = {
    "shell-quiet": shell_quiet,
    "clock": clock,
    "tools": tools,
    "rsync-there": rsync_there,
    "runtime-there": runtime_there,
}
