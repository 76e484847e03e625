"""Causes: a file system or a quota is full, or a folder is unusable."""

from __future__ import annotations

import re

from clusterkit.backends.causes import Cause, Finding, Line, Sure, Text
from clusterkit.backends.jobs import SCHEDULER_LOG
from clusterkit.diagnosis.evidence import Evidence
from clusterkit.diagnosis.rules.commands import logs
from clusterkit.diagnosis.rules.said import last_words, refused

SCRATCH_FULL = Cause(
    "scratch-full",
    "the scratch file system is full",
    "free space there, or set the cluster's `scratch` to a larger one; in a container, /tmp and $HOME are "
    "there too",
)
HOME_FULL = Cause(
    "home-full",
    "the home file system or its quota is full",
    "free space there; the number of files counts too, and caches of pip, conda and Apptainer are the "
    "usual culprits",
)
ROOT_FULL = Cause(
    "root-full",
    "the file system of the run directory, or the quota there, is full",
    "`clusterkit storage prune` removes old images; or set `root` of the cluster to a larger one",
)
NOT_WRITABLE = Cause(
    "not-writable",
    "a folder is not writable",
    "correct its permissions, or use a `root` or `scratch` of your own",
)
CHANGEABLE = Cause(
    "changeable",
    "another user could change a folder that the run uses, and could so run code as you",
    "use a `root` or `scratch` that only you can change, or list whom you trust in `trust`",
)

_FULL = r"No space left on device|Disk quota exceeded|\[Errno 28\]|\[Errno 122\]|EDQUOT|ENOSPC|disk full\?"
_SCRATCH = r"cannot create the scratch folder|cannot write to the scratch folder"
_PATH = re.compile(r"/[^\s'\":,]+")


def full(evidence: Evidence) -> Finding | None:
    """ENOSPC or EDQUOT; the path in the message or df tells which root."""
    found = last_words(evidence, _FULL)
    if found is None:
        return None
    line, sure = found
    cause = _cause(evidence, line)
    role = next(role for role, full in _FULL_OF.items() if full is cause)
    space = evidence.space(role)
    root = evidence.about.get(role) or evidence.subject.run_dir
    return cause.found(
        line,
        # The node's own file system may be full while the login node's is not: then df shows nothing.
        space.line() if space and space.full else None,
        *evidence.texts.get("quota", Text("quota")).tail(1),
        detail=root,
        command=evidence.subject.here(f"df -h {root}"),
        sure=sure,
    )


def scratch_refused(evidence: Evidence) -> Finding | None:
    """job.sh could not create the scratch folder."""
    line = evidence.line(_SCRATCH) if evidence.ended_badly else None
    if line is None:
        return None
    root = evidence.about.get("scratch", "")
    space = evidence.space("scratch")
    denied = evidence.line(r"Permission denied|Read-only file system|Not a directory", "log", SCHEDULER_LOG)
    cause = NOT_WRITABLE if denied else SCRATCH_FULL
    return cause.found(
        denied,
        line,
        space.line() if space else None,
        detail=root,
        command=evidence.subject.here(f"ls -ld {root}" if denied else f"df -h {root}"),
        sure=Sure.LIKELY,
    )


def changeable(evidence: Evidence) -> Finding | None:
    """Another user could change a folder, so job.sh ran nothing."""
    line = evidence.line(r"another user could change ") if evidence.ended_badly else None
    if line is None:
        return None
    doctor = f"clusterkit doctor --no-job --cluster {evidence.subject.cluster}"
    return CHANGEABLE.found(line, command=doctor)


def attempt_refused(evidence: Evidence) -> Finding | None:
    """job.sh could not create the attempt's folder."""
    line = evidence.line(r"cannot create .*/attempts/", SCHEDULER_LOG) if evidence.ended_badly else None
    if line is None:
        return None
    cause = NOT_WRITABLE if evidence.line(r"Permission denied|Read-only", SCHEDULER_LOG) else ROOT_FULL
    space = evidence.space("run")
    return cause.found(
        line,
        space.line() if space else None,
        detail=evidence.subject.run_dir,
        command=evidence.subject.here(f"df -h {evidence.subject.run_dir}"),
        sure=Sure.LIKELY,
    )


def not_writable(evidence: Evidence) -> Finding | None:
    """EACCES or EROFS on a path of the run."""
    found = last_words(evidence, r"(Permission denied|Read-only file system).*/")
    if found is None or refused(evidence):
        return None
    return NOT_WRITABLE.found(found[0], command=logs(evidence), sure=found[1])


RULES = (changeable, full, scratch_refused, attempt_refused, not_writable)

_FULL_OF = {"scratch": SCRATCH_FULL, "home": HOME_FULL, "run": ROOT_FULL}


def _cause(evidence: Evidence, line: Line) -> Cause:
    for path in _PATH.findall(line.text):
        if cause := _owner(evidence, path):
            return cause
    crowded = [space for space in evidence.spaces if space.full]
    if len(crowded) == 1:
        return _FULL_OF[crowded[0].role]
    if re.search(r"[Qq]uota|EDQUOT|122", line.text):
        return HOME_FULL
    return ROOT_FULL if any(space.role == "run" for space in crowded) else SCRATCH_FULL


def _owner(evidence: Evidence, path: str) -> Cause | None:
    """The root that a path belongs to; in a container /tmp, /var/tmp and the home are in scratch."""
    scratch, home = evidence.about.get("scratch", ""), evidence.about.get("home", "")
    if scratch and path.startswith(scratch.rstrip("/") + "/"):
        return SCRATCH_FULL
    if path.startswith(evidence.subject.run_dir + "/"):
        return ROOT_FULL
    if home and path.startswith(home.rstrip("/") + "/"):
        return HOME_FULL
    return SCRATCH_FULL if path.startswith(("/tmp/", "/var/tmp/")) else None  # noqa: S108 - names, not files
