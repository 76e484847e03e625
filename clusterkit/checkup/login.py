"""Asks a login node about itself, its storage and its scheduler in one round trip, and judges it. Pure.

It changes nothing: test files are removed at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clusterkit import ownership
from clusterkit.backends.base import backend_of
from clusterkit.backends.checks import (
    END,
    Answer,
    CheckPlace,
    Checks,
    Scope,
    Verdict,
    failed,
    parse_answer,
    passed,
    warned,
)
from clusterkit.backends.job_script import prelude, templates
from clusterkit.images.image import Image
from clusterkit.probes import TIME_UP, Probe
from clusterkit.probes.space import SCRIPT as SPACE
from clusterkit.site import resolve_script
from clusterkit.untrusted import ordinal

if TYPE_CHECKING:
    from clusterkit.config.models import Cluster

OLDEST_RSYNC = (3, 1)
"""The first version with --info=progress2."""
_SKEWED, _WRONG = 30, 300
"""Seconds of skew: worth a warning; munge, Kerberos and one-time codes fail."""


TOOLS = ("bash", "sh", "tail", "head", "awk", "sed", "find", "sha256sum", "mktemp", "timeout", "tar")
_DIGEST_SECONDS = 60
"""Time limit for hashing the image; after it the size decides."""


@dataclass(frozen=True)
class Login:
    """The login node's answer."""

    cluster: Cluster
    answer: Answer
    here: float
    """This machine's clock at the time of the answer, Unix seconds."""

    def about(self, key: str) -> str:
        """Returns a fact, e.g. `user` or `root`."""
        return self.answer["about"].value(key)


def login_probe(
    cluster: Cluster, *, image: Image | None, requests: Mapping[str, tuple[str, ...]]
) -> Probe[Answer]:
    """Returns the probe of the login node.

    Args:
        cluster: the cluster.
        image: the image to find in the store.
        requests: job options by profile.
    """
    backend = backend_of(cluster)
    checks = backend.checks()
    script = (
        templates()
        .get_template("examine-login.sh.j2")
        .render(
            resolve=resolve_script(cluster),
            cluster=cluster,
            tools=TOOLS,
            ownership=ownership.fragment(cluster.trust, cluster.group),
            space=SPACE,
            image=image,
            digest_seconds=_DIGEST_SECONDS,
            queue=backend.can.queue,
            prelude=prelude(cluster.prelude),
            scheduler=checks.script(requests) if checks else "",
            end=END,
        )
    )
    return Probe("login", script, parse_answer)


def _elsewhere(scope: Scope) -> bool:
    return scope.queued() and scope.remote()


def _contained(scope: Scope) -> bool:
    return scope.queued() and scope.contained()


CHECKS = Checks[Login](CheckPlace.LOGIN, "login")


@CHECKS.declare(applies=_elsewhere)
def shell_quiet(login: Login) -> Verdict:
    """Judges whether the shell's start-up files print nothing, which would precede every answer."""
    part, shell = login.answer["shell"], login.about("shell")
    if part.status == TIME_UP:
        return failed(
            f"{shell} does not finish its start-up files", "find out what ~/.bashrc there waits for"
        )
    if part.text:
        guard = "begin ~/.bashrc there with: case $- in *i*) ;; *) return ;; esac"
        return warned(f"{shell} prints {part.lines[0].strip()[:80]!r} without a terminal", guard)
    return passed(f"{shell} prints nothing")


@CHECKS.declare(applies=_elsewhere)
def clock(login: Login) -> Verdict:
    """Judges whether its clock agrees with this machine's."""
    return skew(login.about("now"), login.here, "this machine's")


def skew(there: str, here: float, whose: str) -> Verdict:
    """Judges two clocks."""
    if (clock := ordinal(there)) is None:
        return warned("it does not report its time", "date +%s")
    seconds = clock - here
    text = f"{abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} {whose}"
    if abs(seconds) >= _WRONG:
        return failed(text, "synchronise the clock that is wrong with NTP: timedatectl set-ntp true")
    if abs(seconds) >= _SKEWED:
        return warned(text, "synchronise the clock that is wrong with NTP: timedatectl set-ntp true")
    return passed(f"agrees with {whose}")


@CHECKS.declare(applies=Scope.queued)
def tools(login: Login) -> Verdict:
    """Judges whether the tools of a POSIX system, and a few more, are present."""
    missing = login.answer["tools"].text.split()
    if missing:
        return failed(
            f"missing: {', '.join(missing)}", "set `login_shell = true`, or ask the site to install them"
        )
    return passed("all there")


@CHECKS.declare(applies=_elsewhere)
def rsync_there(login: Login) -> Verdict:
    """Judges whether rsync is recent enough."""
    return rsync_version(login.answer["rsync"].text, login.about("host"))


def rsync_version(answer: str, where: str) -> Verdict:
    """Returns the version from `rsync --version`; empty if missing."""
    match = re.search(r"version\s+v?([0-9]{1,6})\.([0-9]{1,6})(\S*)", answer)
    install = "apt install rsync, dnf install rsync or brew install rsync"
    if not match:
        if "openrsync" in answer:
            return warned(f"{where} has openrsync; files travel by tar where it lacks an option", install)
        return warned(f"no rsync on {where}: files travel by tar, and changed files whole", install)
    version = f"rsync {match[1]}.{match[2]}{match[3]}"
    if (int(match[1]), int(match[2])) < OLDEST_RSYNC:
        return warned(f"{version} is older than 3.1", install)
    return passed(version)


@CHECKS.declare(applies=_contained)
def runtime_there(login: Login) -> Verdict:
    """Judges the container runtime on the login node, which only builds and `shell` need."""
    part, cluster = login.answer["runtime"], login.cluster
    if part.status == 0:
        return passed(part.lines[-1] if part.lines else cluster.container)
    evidence, cure = cluster.runtime.missing(login.about("host"), f"[clusters.{cluster.name}]")
    why = f": {part.last}" if part.last else ""
    return warned(f"{evidence}{why}; the nodes may have it anyway", cure)
