"""Asks a login node about itself, its storage and its scheduler in one round trip, and judges it. Pure.

It changes nothing: test files are removed at once.
"""

from __future__ import annotations

import re
import shlex
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
from clusterkit.backends.job_script import prelude
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

_ABOUT = r"""
ck_part about printf '%s\n' "user $(id -un)" "uid $(id -u)" "host $(uname -n)" "now $(date +%s)" \
  "home $HOME" "shell ${SHELL:-sh}" "root $root" "scratch $scratch" "store $store"
ck_missing() { for ck_tool; do command -v "$ck_tool" >/dev/null 2>&1 || printf '%s ' "$ck_tool"; done; }
"""

# As sshd starts it: bash reads ~/.bashrc without a terminal when it finds itself at the first level of an ssh
# login. What it prints there comes before the output of every command.
_SHELL = r"""
ck_part shell env SHLVL=0 "${SHELL:-sh}" -c :
"""

_ROOT = r"""
ck_root() {
  if [ -d "$root" ]; then
    echo there
    if [ "$ck_owned" -ne 0 ]; then [ -w "$root" ]; return; fi
    probe=$root/.clusterkit-doctor.$$
    (umask 077 && mkdir "$probe" && head -c 262144 /dev/zero >"$probe/file" && sync "$probe/file") 2>&1
    status=$?
    rm -rf "$probe"
    return $status
  fi
  near=$root
  while [ -n "$near" ] && [ ! -e "$near" ]; do near=${near%/*}; done
  echo "near ${near:-/}"
  [ -d "${near:-/}" ] && [ -w "${near:-/}" ] && [ -x "${near:-/}" ]
}
ck_own root ck_root
ck_part modes ls -ldnL "$root" "$root/runs" "$root/snapshots" "$root/cache" "$store"
"""

# $1 is the group. Tells who is in it, and the modes of all on the way to what it may read, links followed.
_REACH = r"""
ck_reach() {
  ck_entry=$(getent group "$1" 2>/dev/null) && echo "group ${ck_entry%%:*}"
  for ck_member in $(echo "${ck_entry##*:}" | tr , '\n' | head -n 8); do
    if [ "$ck_member" != "$(id -un)" ] && ck_groups=$(id -Gn "$ck_member" 2>/dev/null); then
      echo "member $ck_groups"
    fi
  done
  for ck_path in "$store" "$root/snapshots"; do
    for ck_at in "$ck_path" "$(cd "$ck_path" 2>/dev/null && pwd -P)"; do
      while [ -n "$ck_at" ]; do LC_ALL=C ls -ldL "$ck_at"; ck_at=${ck_at%/*}; done
    done
  done
  LC_ALL=C ls -ldtL "$store"/sha256-*.sif "$root/snapshots"/*/ | head -n 50
}
"""

# Before anything is written there.
_OWNERS = r"""
ck_owners() {
  own_check "$root" "$root/runs" "$root/groups" "$root/snapshots" "$root/cache" "$store" "$scratch/"
  set -- "$?"
  printf '%s--\n%s' "$own_faults" "$own_notes"
  return "$1"
}
ck_own owners ck_owners
ck_owned=$ck_status
"""

_IMAGE = """
ck_image=$store/{name}
ck_part image ls -lLn "$ck_image"
if [ "$(ls -lLn "$ck_image" 2>/dev/null | awk '{{ print $5 }}')" = {bytes} ]; then
  ck_own digest ${{ck_limit:+timeout {seconds}}} sha256sum "$ck_image"
fi
"""
# $1 finds the runtime.
_RUNTIME = r"""
work=$(mktemp -d) || exit
trap 'rm -rf -- "$work"' EXIT
trap 'exit 1' TERM
if ! run_prelude "$work/prelude"; then
  printf '%s\n' "$prelude_end"
  exit 1
fi
(become "$BASH" -p -c "$1")
"""


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
    lines = [resolve_script(cluster), _ABOUT]
    if cluster.host is not None:
        lines += [_SHELL, "ck_part rsync rsync --version"]
    lines += [f"ck_own tools ck_missing {' '.join(TOOLS)}"]
    lines += [ownership.fragment(cluster.trust, cluster.group), _OWNERS, _ROOT]
    if cluster.group:
        lines += [_REACH, f"ck_own reach ck_reach {shlex.quote(cluster.group)} 2>/dev/null"]
    lines.append(f'ck_part space sh -c {shlex.quote(SPACE)} sh "$root" "$store" "$scratch"')
    if image is not None:
        lines.append(_IMAGE.format(name=image.name, bytes=image.bytes, seconds=_DIGEST_SECONDS))
    backend = backend_of(cluster)
    if backend.can.queue and cluster.contained:
        script = prelude(cluster.prelude) + _RUNTIME
        argv = ["bash", "-p", "-c", script, "bash", cluster.runtime.find]
        lines.append(f"ck_part runtime {shlex.join(argv)}")
    if (checks := backend.checks()) is not None:
        lines.append(checks.script(requests))
    return Probe("login", "\n".join([*lines, END]), parse_answer)


def _elsewhere(scope: Scope) -> bool:
    return scope.queued() and scope.remote()


def _contained(scope: Scope) -> bool:
    return scope.queued() and scope.contained()


CHECKS = Checks[Login](CheckPlace.LOGIN, "login")


@CHECKS.declare("start-up files print nothing and finish", applies=_elsewhere)
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


@CHECKS.declare("its clock is within 30 s (fails from 5 min)", applies=_elsewhere)
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


@CHECKS.declare("required programs are installed", applies=Scope.queued)
def tools(login: Login) -> Verdict:
    """Judges whether the tools of a POSIX system, and a few more, are present."""
    missing = login.answer["tools"].text.split()
    if missing:
        return failed(
            f"missing: {', '.join(missing)}", "set `login_shell = true`, or ask the site to install them"
        )
    return passed("all there")


@CHECKS.declare("rsync is installed", applies=_elsewhere)
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


@CHECKS.declare("the container runtime is found", applies=_contained)
def runtime_there(login: Login) -> Verdict:
    """Judges the container runtime on the login node, which only builds and `shell` need."""
    part, cluster = login.answer["runtime"], login.cluster
    if part.status == 0:
        return passed(part.lines[-1] if part.lines else cluster.container)
    evidence, cure = cluster.runtime.missing(login.about("host"), f"[clusters.{cluster.name}]")
    why = f": {part.last}" if part.last else ""
    return warned(f"{evidence}{why}; the nodes may have it anyway", cure)
